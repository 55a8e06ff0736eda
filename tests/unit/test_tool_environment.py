"""What a tool's process does not get from the environment of `cadre up`."""

from cadre.settings import without_secrets


def test_tools_get_none_of_cadres_keys_and_all_that_are_their_own() -> None:
    environment = {
        "CADRE_MODEL_KEY": "a",
        "CADRE_SECRET_SHOP": "b",
        "CADRE_NATS_TLS_KEY": "file",
        "CADRE_NATS_CREDENTIALS": "tools.nk",
        "WEATHER_KEY": "own",
    }
    kept = {
        name: environment[name] for name in ("CADRE_NATS_TLS_KEY", "CADRE_NATS_CREDENTIALS", "WEATHER_KEY")
    }
    assert without_secrets(environment) == kept
