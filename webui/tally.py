"""A histogram of values that come many at once: Prometheus's own takes them one by one, a microsecond each."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Tally(Collector):
    """To be registered. One thread at a time counts; another may collect meanwhile."""

    def __init__(self, name: str, words: str, labels: Mapping[str, str], buckets: Sequence[float]) -> None:
        """`buckets`: their upper bounds, rising; one for what is larger is added."""
        self._name, self._words, self._labels = name, words, labels
        self._bounds = [*buckets, float("inf")]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that came so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See prometheus_client.registry.Collector."""
        family = HistogramMetricFamily(self._name, self._words, labels=list(self._labels))
        up_to, buckets = 0, []
        for bound, count in zip(self._bounds, self._counts, strict=True):
            up_to += count
            buckets.append((floatToGoString(bound), up_to))
        family.add_metric(list(self._labels.values()), buckets, self._sum)
        yield family
