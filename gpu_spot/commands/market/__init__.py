"""Commands on a Spot market: forecast, advise, replay."""
