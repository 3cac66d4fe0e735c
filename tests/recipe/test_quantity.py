import pytest

from spec_toolkit.recipe.quantity import docker_bytes, docker_gpus, kubernetes_bytes, visible_devices


@pytest.mark.parametrize(
    ("text", "amount"),
    [("64Gi", 64 * 2**30), ("1.5G", 1_500_000_000), ("512M", 512_000_000), ("1024", 1024), ("1500m", 1), ("64GB", None), ("", None)],
)  # fmt: skip
def test_kubernetes_counts_in_its_own_units(text, amount):
    assert kubernetes_bytes(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("32g", 32 * 2**30), ("32G", 32 * 2**30), ("32gb", 32 * 2**30), ("512m", 512 * 2**20), ("64", 64), ("lots", None)],
)
def test_docker_counts_in_powers_of_two(text, amount):
    assert docker_bytes(text) == amount


@pytest.mark.parametrize(
    ("text", "count"),
    [("all", None), ("8", 8), ('"device=0,1"', 2), ("device=GPU-0", 1), ("0", None), ("", None)],
)
def test_gpus_of_a_container(text, count):
    assert docker_gpus(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("0,1,2,3", 4), ("GPU-aa,GPU-bb", 2), ("", None), ("-1", None), ("$X", None), ("NoDevFiles", None)],
)
def test_devices_that_are_visible(text, count):
    assert visible_devices(text) == count
