"""What people read: tables, pictures and JSON of plans, weights, queries and releases."""
