"""What goes on in the background and at each call: writing, searching, embedding anew, expiry, migration."""
