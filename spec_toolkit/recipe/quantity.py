"""Amounts of memory and counts of GPUs as container tools write them. Pure; None for what is none."""

import re

_KUBERNETES = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|m)?")
_DOCKER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s?([bkmgt])?i?b?", re.IGNORECASE)
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DEVICES = re.compile(r"device=(.+)")


def kubernetes_bytes(text: str) -> int | None:
    """64Gi, 512M, 1.5G, a plain number."""
    match = _KUBERNETES.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.groups()
    if unit == "m":
        return int(float(number) / 1000)
    return int(float(number) * (_DECIMAL | _BINARY).get(unit or "", 1))


def docker_bytes(text: str) -> int | None:
    """32g, 512m: powers of two, whatever the case."""
    match = _DOCKER.fullmatch(text.strip())
    return int(float(match[1]) * 1024 ** "bkmgt".index((match[2] or "b").lower())) if match else None


def docker_gpus(text: str) -> int | None:
    """Of --gpus: 8, or device=0,1; None for all."""
    text = text.strip().strip("'\"")
    devices = _DEVICES.fullmatch(text)
    if devices:
        return len([device for device in devices[1].split(",") if device])
    return int(text) if re.fullmatch(r"\d{1,4}", text) and text != "0" else None


def visible_devices(text: str) -> int | None:
    """Of CUDA_VISIBLE_DEVICES: a list of numbers or of GPU-…; None for anything else."""
    devices = [device.strip() for device in text.split(",") if device.strip()]
    is_list = devices and all(re.fullmatch(r"\d{1,4}|(GPU|MIG)-[\w-]{1,80}", device) for device in devices)
    return len(devices) if is_list else None
