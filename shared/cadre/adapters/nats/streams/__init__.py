"""Streams and consumers of a deployment: publishing with a fence, leader reads, provisioning."""
