"""People and programs that an OpenID Connect provider vouches for: their tokens, and sign-ins at the console."""
