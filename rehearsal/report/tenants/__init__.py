"""How a rehearsed shared host is shown: its tenants, and when each was there again."""
