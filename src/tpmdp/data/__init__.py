"""A party's own records: from CSV and Parquet files, from SQL over files, from SQLite and from PostgreSQL."""
