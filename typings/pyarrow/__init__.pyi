# pyarrow ships no types. To the checker everything in it is Any, so that what penstock itself
# does stays checked strictly, instead of all reports of unknown types being off.
from typing import Any

def __getattr__(name: str) -> Any: ...
