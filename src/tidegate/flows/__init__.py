"""② A reply is decided: conversations that are declared, checked and drawn before they run."""

from tidegate.flows.builder import FlowBuilder
from tidegate.flows.declaration import flow_of, load_flow, plain_of
from tidegate.flows.flow import Flow
from tidegate.flows.machine import FlowStep, step
from tidegate.flows.model import (
    Button,
    Call,
    Choices,
    FlowError,
    FlowState,
    Key,
    Media,
    Poll,
    Timeout,
    Transition,
    Work,
)
from tidegate.flows.problem import Problem
from tidegate.flows.session import Session, read_session
from tidegate.flows.session_update import upkeep
from tidegate.flows.texts import Texts, read_texts, texts_of

# Their names until 1.0.
State = FlowState
Step = FlowStep

__all__ = [
    "Button",
    "Call",
    "Choices",
    "Flow",
    "FlowBuilder",
    "FlowError",
    "FlowState",
    "FlowStep",
    "Key",
    "Media",
    "Poll",
    "Problem",
    "Session",
    "State",
    "Step",
    "Texts",
    "Timeout",
    "Transition",
    "Work",
    "flow_of",
    "load_flow",
    "plain_of",
    "read_session",
    "read_texts",
    "step",
    "texts_of",
    "upkeep",
]
