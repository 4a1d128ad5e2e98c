"""Commands on a Spot market: forecast, advise, prices, replay."""
