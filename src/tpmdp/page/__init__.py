"""The page: plan, take part and check in a browser. It calls the library; no rule or formula lives here."""
