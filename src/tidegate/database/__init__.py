"""SQL through SQLAlchemy."""
