"""The answers of the HTTP API as structs: the gateway writes them, its clients read them."""
