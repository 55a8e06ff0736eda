"""What the HTTP API answers, as structs: the gateway writes them, its clients read them."""
