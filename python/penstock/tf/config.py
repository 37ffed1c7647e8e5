"""`tf.config`: the settings of programs. The only device is the CPU, and functions are never traced."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.tf.missing import Space, absent_from

__all__ = [
    "LogicalDevice",
    "PhysicalDevice",
    "experimental",
    "functions_run_eagerly",
    "list_logical_devices",
    "list_physical_devices",
    "optimizer",
    "run_functions_eagerly",
    "set_soft_device_placement",
    "set_visible_devices",
    "threading",
]


class PhysicalDevice(NamedTuple):
    """A device that TensorFlow would find."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device on which TensorFlow would run operations."""

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


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """A list with only the CPU, because penstock.tf uses no accelerator.

    Example:
        >>> import penstock.tf as tf
        >>> tf.config.list_logical_devices("GPU")
        []
    """
    cpu = LogicalDevice("/device:CPU:0", "CPU")
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


def set_soft_device_placement(enabled: bool) -> None:
    """Has no effect, because everything runs on the CPU."""


experimental = Space(
    "tf.config.experimental",
    enable_op_determinism=_accept,
    enable_tensor_float_32_execution=_accept,
    list_logical_devices=list_logical_devices,
    list_physical_devices=list_physical_devices,
    set_memory_growth=_accept,
    set_visible_devices=set_visible_devices,
)
optimizer = Space(
    "tf.config.optimizer",
    set_experimental_options=_accept,
    set_jit=_accept,
)
threading = Space(
    "tf.config.threading",
    set_inter_op_parallelism_threads=_accept,
    set_intra_op_parallelism_threads=_accept,
)

__getattr__ = absent_from("tf.config")
