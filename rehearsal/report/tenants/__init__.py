"""How a rehearsed shared host is shown: who used what, what was lent, when each tenant was there again."""
