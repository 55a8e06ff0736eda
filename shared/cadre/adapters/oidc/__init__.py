"""An OpenID Connect provider: its settings, and its metadata, keys and tokens over HTTP."""
