"""Training jobs on the report's page: timeline, migrations, volumes."""
