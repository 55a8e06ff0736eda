"""Test doubles for agents and services: a run that is played without any service, and the scripted model."""

from __future__ import annotations

from cadre.testing.scripted_model import ModelServer, running_model

__all__ = ["ModelServer", "running_model"]
