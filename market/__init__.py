"""The spot market: what it offers, the one engine that replays it, and what policies come to on it."""
