"""Errors of endpoints in every dress: their words, their codes, how long to wait, and whether another try can help."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.adapters.models.error_body import error_in, read_error
from cadre.adapters.models.failure import (
    Refusal,
    ended_answer,
    failed_status,
    refusal_of,
    refused_call,
    retry_after,
)
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.ports import ModelReply
from cadre.spec.model import ModelSpec

URL = "http://host:1/v1"
RAW = json.dumps({"error": {"message": "Model is busy.", "code": "overloaded_error"}})


@pytest.mark.parametrize(
    ("sent", "text", "status", "code", "param"),
    [
        (
            {"error": {"message": "no", "type": "invalid_request_error", "param": "stop", "code": "bad"}},
            "no",
            None,
            "bad",
            "stop",
        ),
        (
            {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
            "no",
            400,
            "BadRequestError",
            None,
        ),
        (
            {"message": "no", "type": "invalid_request_error", "code": "wrong_api_format"},
            "no",
            None,
            "wrong_api_format",
            None,
        ),
        ({"code": "bad", "error": "no"}, "no", None, "bad", None),
        ({"error": "no"}, "no", None, None, None),
        ({"error": "insufficient_quota"}, "insufficient_quota", None, "insufficient_quota", None),
        (
            [{"error": {"code": 429, "message": "no", "status": "RESOURCE_EXHAUSTED"}}],
            "no",
            429,
            "RESOURCE_EXHAUSTED",
            None,
        ),
        (
            {"type": "error", "error": {"type": "bad_request_error", "message": "no", "http_code": "400"}},
            "no",
            400,
            "bad_request_error",
            None,
        ),
        ({"base_resp": {"status_code": 1008, "status_msg": "no"}}, "no", None, "1008", None),
        ({"__type": "ThrottlingException", "Message": "no"}, "no", None, "ThrottlingException", None),
        ({"error_code": 336007, "error_msg": "no"}, "no", None, "336007", None),
        ({"Response": {"Error": {"Code": "Bad", "Message": "no"}}}, "no", None, "Bad", None),
        ({"ResponseMetadata": {"Error": {"Code": "Bad", "Message": "no"}}}, "no", None, "Bad", None),
        (
            {"fault": {"faultstring": "no", "detail": {"errorcode": "policies.Quota"}}},
            "no",
            None,
            "policies.Quota",
            None,
        ),
        ({"errors": [{"description": "no"}]}, "no", None, None, None),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 502,
                    "metadata": {"raw": RAW, "provider_name": "X"},
                }
            },
            "Provider returned error: Model is busy.",
            502,
            "overloaded_error",
            None,
        ),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 502,
                    "metadata": {"raw": "upstream is down"},
                }
            },
            "Provider returned error: upstream is down",
            502,
            None,
            None,
        ),
        (
            {"error": {"message": f"litellm.APIError: {RAW}", "code": "500"}},
            "litellm.APIError: Model is busy.",
            500,
            "overloaded_error",
            None,
        ),
        (
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "seed"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
            "Extra inputs are not permitted: body.seed",
            None,
            "extra_forbidden",
            "seed",
        ),
        ({"detail": "no"}, "no", None, None, None),
        ({"success": False, "errors": [{"code": 7003, "message": "no"}]}, "no", None, "7003", None),
        (
            "<html><head><title>x</title></head><body><h1>502 Bad Gateway</h1></body></html>",
            "502 Bad Gateway",
            None,
            None,
            None,
        ),
        ("upstream connect error", "upstream connect error", None, None, None),
        (None, "", None, None, None),
        ({}, "", None, None, None),
        ({"odd": 1}, '{"odd": 1}', None, None, None),
    ],
)
def test_shapes(sent: Any, text: str, status: int | None, code: str | None, param: str | None) -> None:
    error = read_error(sent)
    assert (error.text, error.status, error.param) == (text, status, param)
    assert refusal_of(sent).code == code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "code",
                    "type",
                    "detail",
                    "metadata",
                    "raw",
                    "choices",
                    "retryDelay",
                    "loc",
                    "status",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_no_error_is_too_odd_to_be_read(sent: Any) -> None:
    error_in(sent)
    refusal = refusal_of(sent)
    assert 400 <= refusal.status < 600
    failed_status(ModelSpec(), URL, refusal, {"model": "m"})


QUOTA = "You exceeded your current quota, please check your plan and billing details."
MONEY = [
    (429, {"error": {"message": "Your account balance is not enough"}}),
    (
        403,
        {"error": {"message": "Key limit exceeded (total limit). Manage it in your settings", "code": 403}},
    ),
    (429, {"error": {"message": "Credits have been exhausted"}}),
    (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
    (429, {"error": {"message": QUOTA, "type": "insufficient_quota", "code": "insufficient_quota"}}),
    (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}),
    (500, {"type": "error", "error": {"message": "insufficient balance (1008)", "http_code": "500"}}),
    (None, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
    (400, {"error": {"message": "Your credit balance is too low to access the Anthropic API."}}),
    (429, {"error": {"type": "exceeded_current_quota_error", "message": "Your account is suspended"}}),
    (402, {"error": {"message": "Insufficient Balance"}}),
    (402, ""),
    (400, {"error": {"message": "Budget has been exceeded! Current cost: 1.2", "type": "budget_exceeded"}}),
    (None, {"error": {"message": "Insufficient credits.", "code": 402}}),
    (
        400,
        {"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing."},
    ),
    (429, {"error": {"message": "Rate limit exceeded: free-models-per-day. Add 10 credits", "code": 429}}),
    (
        429,
        [
            {
                "error": {
                    "code": 429,
                    "message": f"{QUOTA} Please retry in 12s.",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [
                        {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
                        {"retryDelay": "12s"},
                    ],
                }
            }
        ],
    ),
]


@pytest.mark.parametrize(("status", "sent"), MONEY)
def test_a_quota_that_is_used_up_is_not_waited_for(status: int | None, sent: Any) -> None:
    error = failed_status(ModelSpec(), URL, refusal_of(sent, status), {"model": "m"})
    assert isinstance(error, ModelRefused)
    assert "model.fallbacks" in str(error)


PASSING = [
    (429, {"error": {"message": "slow down"}}, None),
    (
        429,
        [
            {
                "error": {
                    "code": 429,
                    "message": f"{QUOTA} Please retry in 45.837906927s.",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [{"@type": "RetryInfo", "retryDelay": "45.837906927s"}],
                }
            }
        ],
        45.838,
    ),
    (429, {"error": {"message": "Rate limit reached. Please try again in 4.77s. Visit"}}, 4.77),
    (429, {"error": {"message": "Please try again in 7m12.5s."}}, 432.5),
    (429, {"error": {"message": "Try again in 350ms"}}, 0.35),
    (429, {"error": {"message": "Please wait 20 seconds before retrying"}}, 20.0),
    (429, {"error": {"message": "Retry after 2 minutes"}}, 120.0),
    (None, {"error": {"message": "Rate limit exceeded: free-models-per-min.", "code": 429}}, None),
    (None, {"error": {"message": "Too many requests", "type": "rate_limit_error"}}, None),
    (None, {"error": "The service is currently unavailable"}, None),
    (498, {"error": {"message": "Flex tier capacity exceeded"}}, None),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, None),
    (503, "", None),
    (400, {"__type": "ThrottlingException", "Message": "Too many requests"}, None),
    (499, {"error": {"message": "The request was cancelled upstream"}}, None),
    (None, {"error_code": 18, "error_msg": "Open api qps request limit reached"}, None),
    (None, {"Response": {"Error": {"Code": "FailedOperation", "Message": "engine is busy"}}}, None),
]


@pytest.mark.parametrize(("status", "sent", "wait"), PASSING)
def test_what_passes_is_waited_for(status: int | None, sent: Any, wait: float | None) -> None:
    error = failed_status(ModelSpec(), URL, refusal_of(sent, status), {"model": "m"})
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == wait


FINAL = [
    (500, {"error": {"message": "Unsupported parameter: 'stop' is not supported with this model."}}),
    (501, {"error": {"message": "not implemented"}}),
    (500, {"error": {"code": 500, "message": "Cannot use tools with stream", "type": "server_error"}}),
    (400, {"error": {"message": "Invalid schema"}}),
    (None, {"error": {"message": "no", "code": "invalid_prompt"}}),
    (
        400,
        {
            "error": {
                "type": "content_filter",
                "message": "The request was rejected because it was considered high risk",
            }
        },
    ),
    (
        400,
        {
            "error": {
                "code": "data_inspection_failed",
                "message": "Input data may contain inappropriate content.",
            }
        },
    ),
]


@pytest.mark.parametrize(("status", "sent"), FINAL)
def test_what_no_second_try_would_mend(status: int | None, sent: Any) -> None:
    assert isinstance(failed_status(ModelSpec(), URL, refusal_of(sent, status), {"model": "m"}), ModelRefused)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20s"}, 20.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, 7.66),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m59.56s"}, 179.56),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "7.66s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
    ],
)
def test_delays_in_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=0.0) == seconds


CALLS = [
    (
        400,
        {
            "error": {
                "message": "Failed to call a function. Please adjust your prompt.",
                "code": "tool_use_failed",
                "failed_generation": '<function=weather={"city": "Bern"}</function>',
            }
        },
    ),
    (500, {"error": 'error parsing tool call: raw=\'{"city": "Bern}\', err=unexpected end of JSON input'}),
]


@pytest.mark.parametrize(("status", "sent"), CALLS)
def test_a_call_that_the_endpoint_could_not_read(status: int, sent: Any) -> None:
    refusal = refusal_of(sent, status)
    assert refusal.about_call
    (call,) = refused_call(refusal, ["weather", "clock"]).calls
    assert call.error is not None
    assert call.error.code == "invalid-call"
    # Without functions on offer there is nothing to say to the model: another try may go better.
    assert isinstance(failed_status(ModelSpec(), URL, refusal, {"model": "m"}), ModelUnavailable)


def test_the_function_that_was_meant_is_named() -> None:
    refusal = refusal_of(CALLS[0][1], 400)
    assert [call.name for call in refused_call(refusal, ["clock", "weather"]).calls] == ["weather"]


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("error", ModelUnavailable),
        ("network_error", ModelUnavailable),
        ("insufficient_system_resource", ModelUnavailable),
        ("sensitive", ModelRefused),
        ("content_filter: RECITATION", ModelRefused),
        ("model_context_window_exceeded", ModelRefused),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "invalid-call"),
        ("COMPLETE", "stop"),
        ("FinishReason.STOP", "stop"),
        ("FinishReason.MAX_TOKENS", "length"),
        ("ERROR_TOXIC", ModelRefused),
        ("ERROR_LIMIT", ModelRefused),
        ("refusal", ModelRefused),
        ("cancelled", ModelUnavailable),
        ("timeout", ModelUnavailable),
        ("MALFORMED_RESPONSE", "invalid-call"),
    ],
)
def test_how_an_answer_ended(reason: str, outcome: Any) -> None:
    reply = ModelReply(content="a", finish_reason=reason)
    if isinstance(outcome, type):
        with pytest.raises(outcome) as caught:
            ended_answer(URL, reply, ["clock"])
        assert getattr(caught.value, "too_long", False) == (reason in ("model_context_window_exceeded", "ERROR_LIMIT"))
        return
    ended = ended_answer(URL, reply, ["clock"])
    if outcome == "invalid-call":
        assert [call.error and call.error.code for call in ended.calls] == ["invalid-call"]
    else:
        assert (ended.finish_reason == "length") == (outcome == "length")


def test_credit_that_is_used_up_is_no_rate_limit() -> None:
    assert not Refusal(status=429, text=QUOTA).passes
    assert Refusal(status=429, text=QUOTA, wait=3.0).passes
