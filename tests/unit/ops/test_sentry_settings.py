"""Sample rates of Sentry are read where they are used: they may be the application's own."""

import pytest

from tidegate.errors import BadInputError
from tidegate.ops.sentry import sample_rate
from tidegate.settings import Settings


@pytest.mark.parametrize(("text", "rate"), [(None, 0), ("0", 0), ("0.25", 0.25), (" 1 ", 1)])
def test_a_share_is_read(text: str | None, rate: float) -> None:
    assert sample_rate("SENTRY_TRACES_SAMPLE_RATE", text) == rate


@pytest.mark.parametrize("text", ["often", "-0.1", "1.01", "nan", "inf"])
def test_what_is_no_share_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(BadInputError, match="SENTRY_TRACES_SAMPLE_RATE is not a share"):
        sample_rate("SENTRY_TRACES_SAMPLE_RATE", text)


def test_values_of_an_application_that_tidegate_cannot_use_do_not_stop_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SENTRY_TRACES_SAMPLE_RATE", "often")
    monkeypatch.setenv("SENTRY_DSN", "of another kind")

    settings = Settings.read()

    assert settings.sentry_traces_sample_rate == "often"
    assert "of another kind" not in repr(settings)
