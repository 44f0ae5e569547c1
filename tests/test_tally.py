"""A tally says what Prometheus's own histogram says of the same values."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from webui.tally import Tally

BUCKETS = (0.001, 0.5, 1, 10)


def test_a_tally_gives_the_lines_of_a_histogram():
    labels = {"model_name": "a", "engine": "0"}
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("wait_seconds", "between two", list(labels), registry=theirs, buckets=BUCKETS)
    tally = Tally("wait_seconds", "between two", labels, BUCKETS)
    ours.register(tally)
    for value, times in ((0.0, 1), (0.001, 3), (0.0011, 2), (1, 5), (9.5, 1), (10.5, 4)):
        tally.observe(value, times)
        for _ in range(times):
            histogram.labels(**labels).observe(value)
    lines = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert sorted(generate_latest(ours).decode().splitlines()) == sorted(lines)
