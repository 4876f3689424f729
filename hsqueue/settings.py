"""Settings: ``HSQ_*`` variables, then ``hsqueue.toml``, the same names. The command line overrides both."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from hsqueue.contracts.errors import UsageError

DEFAULT_DUMP_DIR = Path("/dev/shm/sglang_hs")  # noqa: S108 - the dump contract's directory, made private


def config_file() -> Path:
    """``$HSQ_CONFIG``, or ``hsqueue.toml`` in the working directory."""
    return Path(os.environ.get("HSQ_CONFIG", "hsqueue.toml"))


def _split_volumes(value: object) -> object:
    return tuple(Path(part) for part in value.split(":") if part) if isinstance(value, str) else value


class Settings(BaseSettings):
    """Every setting with its default; ``docs/reference.md`` is written from this class."""

    model_config = SettingsConfigDict(env_prefix="HSQ_", env_ignore_empty=True, extra="ignore", frozen=True)

    redis_url: SecretStr | None = Field(
        None, description="Redis of the queue and the ledger, redis:// or rediss://. None: an embedded one."
    )
    dump_dir: Path = Field(DEFAULT_DUMP_DIR, description="Where this worker's engine writes its dumps.")
    volumes: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split_volumes)] = Field(
        (), description="Directories that runs may lie in, separated by ':'. Empty: anywhere."
    )
    lease_ttl: float = Field(60.0, gt=0.5, description="Seconds a shard's lease lives without renewal.")
    max_in_flight: int = Field(256, ge=1, description="Requests in flight per engine.")
    max_tokens_in_flight: int = Field(
        1 << 16, ge=1, description="Tokens of prompts in flight per engine; a few of its prefill batches."
    )
    max_dump_bytes: int = Field(8 << 30, ge=1, description="Bytes of dumps awaited or unread, per engine.")
    publishers: int = Field(
        16, ge=1, description="Samples copied to the volume at a time, per process of a worker; it has two."
    )
    request_timeout: float = Field(600.0, gt=0, description="Seconds to wait for a response.")
    dump_timeout: float = Field(60.0, gt=0, description="Seconds to wait for a dump after its response.")
    max_attempts: int = Field(
        5, ge=1, description="Times a sample may fail in the same way before it counts as failed."
    )
    max_leases: int = Field(
        20, ge=1, description="Times a shard may be leased without any progress before the rest of it counts as failed."
    )
    commit_every: float = Field(1.0, gt=0, description="Seconds between two commits to the ledger.")
    commit_samples: int = Field(256, ge=1, description="Samples that force a commit.")
    requeue_grace: float = Field(
        30.0, gt=0, description="Seconds a queued shard may be missing from an empty queue before it is sent again."
    )
    flower_user: str = Field("hsqueue", description="User name for Flower.")
    flower_password: SecretStr | None = Field(None, description="Password for Flower. None: made and shown once.")
    log: Literal["human", "json"] = Field("human", description="Form of the log lines.")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Passwords, for logs to hide."""
        url = urlsplit(self.redis_url.get_secret_value()) if self.redis_url else None
        found = [unquote(url.password)] if url and url.password else []
        return (*found, *([self.flower_password.get_secret_value()] if self.flower_password else []))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file())


def load_settings(**overrides: Any) -> Settings:
    """The settings in force; `overrides` that are None count for nothing. Raises UsageError, naming the setting."""
    _require_known_names(config_file())
    try:
        return Settings(**{k: v for k, v in overrides.items() if v is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"])
        raise UsageError(
            f"setting {name}: {first['msg']}",
            found=repr(first.get("input"))[:60],
            do=f"Correct HSQ_{name.upper()} or {config_file()}.",
        ) from None
    except ValueError as error:
        raise UsageError(f"{config_file()} cannot be read ({error})", do="Correct the file.") from None


def _require_known_names(path: Path) -> None:
    """A misspelt name in the file would be a setting that silently keeps its default."""
    if not path.exists():
        if "HSQ_CONFIG" in os.environ:
            raise UsageError(f"HSQ_CONFIG names {path}, which does not exist", do="Correct it, or unset it.")
        return
    try:
        names = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})", do="Correct the file.") from None
    for name in names:
        if name not in Settings.model_fields:
            raise UsageError(f"{path} names an unknown setting {name!r}", do="See docs/reference.md for the names.")
