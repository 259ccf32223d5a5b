"""NocoDB behind the limiter: records of tables, filters and values."""
