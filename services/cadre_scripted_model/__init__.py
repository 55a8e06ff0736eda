"""A model endpoint without a model: it plays scripts, records real endpoints and replays them."""

NOT_AN_AI = "scripted model, not an AI"
MODEL_ID = "scripted"
