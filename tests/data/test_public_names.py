"""The public names of the room, and that asking for one loads no more than it needs."""

import subprocess
import sys

import polarvit.data as data


def test_every_public_name_can_be_had() -> None:
    assert set(data.__all__) == {
        "Augmentation",
        "Augmenter",
        "BatchPlan",
        "Batches",
        "CifarSource",
        "DataError",
        "DigitsSource",
        "FolderSource",
        "HubSource",
        "MaskAugmenter",
        "MaskFolderSource",
        "MaskSource",
        "NamedMaskSource",
        "PackedDataset",
        "ResidentDataset",
        "SequentialPlan",
        "Source",
        "StreamingDataset",
        "batches",
        "prepare",
        "prepare_masks",
    }
    for name in data.__all__:
        assert getattr(data, name) is not None
    assert issubclass(data.DataError, ValueError)


def test_importing_the_room_does_not_import_torch() -> None:
    code = "import sys, polarvit.data; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
