"""The operators of graphs by module, the only table of their names, and the contents of `fn` and `ops`.

`fn.readers.file` and `ops.readers.File` are made on first use from the class listed under `readers.file` here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable

from beam_pipes.checks import nearest
from beam_pipes.errors import GraphError
from beam_pipes.extras import lacking
from beam_pipes.graph.functions import class_of, function_of
from beam_pipes.graph.operator import Operator

# Module → names of its operators. The class of `random.coin_flip` is `CoinFlip`, except for those in `_CLASSES`.
_CHAPTERS: dict[str, str] = {
    "arrays": (
        "cast math.abs math.acos math.acosh math.asin math.asinh math.atan math.atan2 math.atanh math.cbrt math.ceil "
        "math.clamp math.cos math.cosh math.exp math.fabs math.floor math.fpow math.log math.log10 math.log2 math.max "
        "math.min math.pow math.rsqrt math.sin math.sinh math.sqrt math.tan math.tanh reinterpret reshape"
    ),
    "audio": (
        "audio_resample decoders.audio mel_filter_bank mfcc nonsilent_region power_spectrum preemphasis_filter "
        "spectrogram to_decibels"
    ),
    "coordinates": (
        "bb_flip bbox_paste box_encoder coord_flip coord_transform random_bbox_crop transforms.combine transforms.crop "
        "transforms.rotation transforms.scale transforms.shear transforms.translation"
    ),
    "decoders": "decoders.image decoders.image_crop decoders.image_random_crop decoders.image_slice peek_image_shape",
    "external_source": "external_source python_function",
    "image.colours": "brightness brightness_contrast color_space_conversion color_twist contrast hsv hue saturation",
    "image.crops": "crop crop_mirror_normalize flip",
    "image.effects": (
        "erase gaussian_blur grid_mask jpeg_compression_distortion multi_paste noise.gaussian noise.salt_and_pepper "
        "noise.shot paste"
    ),
    "image.policies": "auto_augment rand_augment trivial_augment_wide",
    "image.resize": "random_crop_generator random_resized_crop resize resize_crop_mirror",
    "image.warps": "rotate warp_affine",
    "joining": "cat one_hot pad stack",
    "random": "random.beta random.choice random.coin_flip random.normal random.uniform",
    "readers.annotated": "readers.coco readers.nemo_asr readers.webdataset",
    "readers.files": "readers.file readers.numpy",
    "readers.frames": "readers.sequence readers.video",
    "readers.tfrecord": "readers.tfrecord",
    "reductions": (
        "normalize reductions.max reductions.mean reductions.mean_square reductions.min reductions.rms "
        "reductions.std_dev reductions.sum reductions.variance"
    ),
    "shapes": (
        "batch_permutation cast_like copy decoders.numpy element_extract expand_dims full full_like get_property "
        "io.file.read lookup_table ones ones_like permute_batch shapes squeeze transpose zeros zeros_like"
    ),
    "slicing": "slice",
    "text": "pack pad_batch tokenize",
}
_CLASSES = {
    "bbox_paste": "BBoxPaste",
    "coco": "COCO",
    "coco_reader": "COCOReader",
    "mfcc": "MFCC",
    "random_bbox_crop": "RandomBBoxCrop",
    "rms": "RMS",
    "tfrecord": "TFRecord",
    "tfrecord_reader": "TFRecordReader",
}


def last_of(name: str) -> str:
    """The name of an operator in its module of `fn`: `random.coin_flip` → `coin_flip`."""
    return name.rpartition(".")[2]


def class_name(name: str) -> str:
    """The name of an operator in `ops`: `random.coin_flip` → `CoinFlip`."""
    last = last_of(name)
    return _CLASSES.get(last) or "".join(part.capitalize() for part in last.split("_"))


#: Name → location of its class, sorted.
OPERATORS: dict[str, str] = dict(
    sorted(
        (name, f"{__name__}.{chapter}:{class_name(name)}")
        for chapter, names in _CHAPTERS.items()
        for name in names.split()
    )
)

#: DALI's older names for operators, and their names while they were experimental.
ALIASES: dict[str, str] = {
    "audio_decoder": "decoders.audio",
    "auto_augment_image_net": "auto_augment",
    "coco_reader": "readers.coco",
    "coin_flip": "random.coin_flip",
    "experimental.decoders.image": "decoders.image",
    "experimental.decoders.image_crop": "decoders.image_crop",
    "experimental.decoders.image_random_crop": "decoders.image_random_crop",
    "experimental.decoders.image_slice": "decoders.image_slice",
    "experimental.peek_image_shape": "peek_image_shape",
    "experimental.readers.video": "readers.video",
    "file_reader": "readers.file",
    "image_decoder": "decoders.image",
    "image_decoder_crop": "decoders.image_crop",
    "image_decoder_random_crop": "decoders.image_random_crop",
    "image_decoder_slice": "decoders.image_slice",
    "normal_distribution": "random.normal",
    "numpy_reader": "readers.numpy",
    "tfrecord_reader": "readers.tfrecord",
    "uniform": "random.uniform",
}


_WARP = "an affine map is `warp_affine`; others are `python_function`"
_PIXELS = "OpenCV has it: `python_function`"
_VIDEO = "`readers.video` reads files; decode bytes by PyAV in a `python_function`"
_OLD = "the format of a discontinued framework: convert it to TFRecords"
_MASKS = "masks as NumPy arrays, in `python_function`"

#: DALI's operators that we do not have → why, and what to use. Messages and docs/operators.md are made from it.
ABSENT: dict[str, str] = {
    **dict.fromkeys(["clahe", "debayer", "equalize", "filter", "laplacian"], _PIXELS),
    **dict.fromkeys(["experimental.warp_perspective", "sphere", "water"], _WARP),
    **dict.fromkeys(["decoders.video", "experimental.inputs.video"], _VIDEO),
    **dict.fromkeys(["readers.caffe", "readers.caffe2", "readers.mxnet"], _OLD),
    **dict.fromkeys([f"segmentation.{one}" for one in ("random_mask_pixel", "random_object_bbox")], _MASKS),
    "bbox_rotate": "boxes as NumPy arrays, in `python_function`",
    "segmentation.select_masks": _MASKS,
    "dl_tensor_python_function": "`python_function` takes NumPy arrays",
    "dump_image": "write from a `python_function`",
    "experimental.readers.fits": "an export to `.npy` is read by `readers.numpy`",
    "per_frame": "layouts are declared by the source of samples",
    "roi_random_crop": "`random.uniform` gives the anchor of a `slice`",
    "sequence_rearrange": "`element_extract` and `stack`",
    "tensor_resize": "`resize` for images; there are no volumes",
}


def what_instead(name: str) -> str:
    """The end of a message about an operator, or a family, that only DALI has; nothing for other names.

    `bbox_rotate` → " It is one of DALI's operators that are absent here: boxes as NumPy arrays, in `python_function`."
    """
    for full, why in ABSENT.items():
        if _letters(full) == _letters(name):
            return f" It is one of DALI's operators that are absent here: {why}."
    family = [one for one in ABSENT if one.startswith(f"{name}.")]
    return f" DALI's operators {', '.join(family)} are absent here: {ABSENT[family[0]]}." if family else ""


def _letters(name: str) -> str:
    return name.removeprefix("experimental.").replace("_", "").lower()


def operator_class(name: str) -> type[Operator]:
    """The class of an operator, `random.coin_flip` → `CoinFlip`; loaded on first use."""
    place = OPERATORS.get(name)
    if place is None:
        near = what_instead(name) or nearest(name, OPERATORS)
        raise GraphError(f"there is no operator {name!r}.{near}")
    module, _, attribute = place.partition(":")
    found: type[Operator] = getattr(importlib.import_module(module), attribute)
    found.op_name = name
    return found


def families() -> list[str]:
    """The prefixes of names, including those that contain only families: `io`, `io.file`, `random`, …"""
    prefixes = [name.split(".")[:-1] for name in (*OPERATORS, *ALIASES)]
    return sorted({".".join(parts[: at + 1]) for parts in prefixes for at in range(len(parts))})


def families_of(family: str) -> list[str]:
    """The families directly below one, by their last names: `io` → `file`; top-level ones for ""."""
    return [name.rpartition(".")[2] for name in families() if name.rpartition(".")[0] == family]


@functools.cache
def _function(name: str) -> Callable[..., object]:
    return function_of(operator_class(name))


@functools.cache
def _class(name: str) -> type:
    return class_of(operator_class(name))


_Module = tuple[Callable[[str], object], Callable[[], list[str]]]


def functions(package: str) -> _Module:
    """`__getattr__` and `__dir__` of the package of functions; makes its modules, one for each family."""
    return _package(package, _functions)


def classes(package: str) -> _Module:
    """`__getattr__` and `__dir__` of the package of classes; makes its modules, one for each family."""
    return _package(package, _classes)


def _package(package: str, offered: Callable[[str, str], _Module]) -> _Module:
    for family in families():
        name = f"{package}.{family}"
        module = types.ModuleType(name, f"`{package.rpartition('.')[2]}.{family}`: see `{package}`.")
        # importlib.util.find_spec, which pkgutil and doctest call, rejects loaded modules without a spec.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__package__ = package
        module.__dict__["__getattr__"], module.__dict__["__dir__"] = offered(name, family)
        # `import beam_pipes.transforms.fn.readers` finds the module already loaded.
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, module)
    return offered(package, "")


def names_in(family: str, names: Iterable[str] = OPERATORS) -> list[str]:
    """The names in a family: `random` → `random.choice`, …"""
    return sorted(name for name in names if name.rpartition(".")[0] == family)


def _functions(module: str, family: str) -> _Module:
    return _module(module, family, last_of, _function)


def _classes(module: str, family: str) -> _Module:
    return _module(module, family, class_name, _class)


def _module(module: str, family: str, named: Callable[[str], str], make: Callable[[str], object]) -> _Module:
    names = {named(name): name for name in names_in(family)}
    older = {named(name): ALIASES[name] for name in names_in(family, ALIASES)}
    own_families = families_of(family)

    def load(name: str) -> object:
        found = names.get(name) or older.get(name)
        if found is None:
            instead = what_instead(".".join(filter(None, [family, name])))
            raise lacking(module, name, instead, near=f".{nearest(name, listed())}")
        made = make(found)
        setattr(sys.modules[module], name, made)
        return made

    def listed() -> list[str]:
        return sorted([*names, *own_families])

    return load, listed
