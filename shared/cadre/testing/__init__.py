"""Test doubles for agents and services: a run that is played without any service, and the scripted model."""

from __future__ import annotations

from cadre.journal.arrivals import Offer
from cadre.testing.course import Course, call
from cadre.testing.records import cancel, report, result, task, timer
from cadre.testing.scripted_model import ModelServer, running_model

__all__ = [
    "Course",
    "ModelServer",
    "Offer",
    "call",
    "cancel",
    "report",
    "result",
    "running_model",
    "task",
    "timer",
]
