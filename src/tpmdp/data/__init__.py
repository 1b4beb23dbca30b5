"""Readers of a party's records: CSV and Parquet files, SQL over files, SQLite and PostgreSQL."""
