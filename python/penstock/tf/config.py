"""`tf.config`: the settings of programs. The only device is the CPU, and functions are never traced."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.tf.missing import Space, absent_from

__all__ = [
    "PhysicalDevice",
    "experimental",
    "functions_run_eagerly",
    "list_physical_devices",
    "run_functions_eagerly",
    "set_visible_devices",
    "threading",
]


class PhysicalDevice(NamedTuple):
    """A device that TensorFlow would find."""

    name: str
    device_type: str


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """A list with only the CPU, because penstock.tf uses no accelerator.

    Example:
        >>> import penstock.tf as tf
        >>> tf.config.list_physical_devices("GPU")
        []
    """
    cpu = PhysicalDevice("/physical_device:CPU:0", "CPU")
    return [cpu] if device_type in {None, "CPU"} else []


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Has no effect, because functions are never traced."""


def functions_run_eagerly() -> bool:
    """Always True."""
    return True


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Has no effect, because no accelerator is used."""


def _accept(*_: Any) -> None:
    """Has no effect."""


experimental = Space(
    "tf.config.experimental",
    list_physical_devices=list_physical_devices,
    set_memory_growth=_accept,
    set_visible_devices=set_visible_devices,
)
threading = Space(
    "tf.config.threading",
    set_inter_op_parallelism_threads=_accept,
    set_intra_op_parallelism_threads=_accept,
)

__getattr__ = absent_from("tf.config")
