"""Take, check, retry, delay or give up one message."""
