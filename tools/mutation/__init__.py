"""A mutation check: plants small bugs in the core of the library and looks whether a test notices each of them."""
