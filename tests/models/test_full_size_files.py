"""Every registered model at its full size: copies, files for other runtimes, and a step of two processes."""

import pytest
from models.copies import check_copies
from models.exported import check_program, check_tidy, needs_onnx, run_onnx
from models.full_size import CPU, CUDA, NAMES, full_images, full_model
from models.two_processes import check_two_processes

from polarvit.models import export_onnx, export_program


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def exported(name):
    """A model and its program for one image, which takes a minute to make; shared by the tests of this model."""
    model = full_model(name)
    return model, export_program(model, batch=1)


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_copies_pickles_state_dicts_and_functional_calls_agree(name, device) -> None:
    model = full_model(name).to(device)
    check_copies(model, full_images(model, 1))


@pytest.mark.slow
@pytest.mark.full_size
def test_exported_programs_give_the_logits(exported) -> None:
    model, program = exported
    check_program(program, model, full_images(model, 1), atol=1e-5)


@needs_onnx
@pytest.mark.slow
@pytest.mark.full_size
def test_onnx_files_give_the_logits(exported, tmp_path) -> None:
    model, program = exported
    path = export_onnx(program, tmp_path / "model.onnx")
    run_onnx(model, path, (1,))
    check_tidy(path)


@pytest.mark.full_size
@pytest.mark.parametrize("device", [CUDA])
def test_programs_exported_on_a_gpu_give_the_logits(name, device) -> None:
    model = full_model(name).to(device)
    check_program(export_program(model, batch=1), model, full_images(model, 1), atol=1e-5)


def build(name: str):
    """In float64, with nothing random; the batch is four images."""
    model = full_model(name, drop_path=0.0, dropout=0.0).double()
    return model, full_images(model, 4)


@pytest.mark.slow
@pytest.mark.full_size
def test_two_processes_agree_with_one(name, tmp_path) -> None:
    check_two_processes(tmp_path, build, [name])
