"""Credentials of a profile of AWS, as the AWS CLI resolves it: files, single sign-on, assumed roles."""

import json
import os
import shutil
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING

from offsetlake.errors import BadRequest, LakeUnusable

if TYPE_CHECKING:
    from obstore.store import S3Credential

_TIMEOUT_SECONDS = 60


def profile_credentials() -> "S3Credential":
    """Return the credentials of the profile that AWS_PROFILE names, by `aws configure export-credentials`.

    Raises BadRequest if the AWS CLI is not installed, LakeUnusable if it does not give credentials.
    """
    program, profile = shutil.which("aws"), os.environ["AWS_PROFILE"]
    if program is None:
        raise BadRequest(
            f"AWS_PROFILE is {profile!r}, and the AWS CLI, which reads profiles, is not on the PATH: install it, in "
            "version 2, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    command = [program, "configure", "export-credentials", "--format", "process"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)  # noqa: S603
    if done.returncode:
        raise LakeUnusable(f"the AWS CLI has no credentials for the profile {profile!r}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    expires = found.get("Expiration")
    return {
        "access_key_id": found["AccessKeyId"],
        "secret_access_key": found["SecretAccessKey"],
        "token": found.get("SessionToken"),
        "expires_at": datetime.fromisoformat(expires) if expires else None,
    }
