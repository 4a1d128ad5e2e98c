"""How a finished rehearsal, or a comparison of policies, is shown: terminal, page, picture, plot."""
