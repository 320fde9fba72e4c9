"""Images: decoding, windows, colours, joining."""

import os

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.pipeline import do_not_convert


def write_images(root):
    """Two images of 6×8 pixels, as PPM."""
    os.makedirs(os.path.join(root, "a"))
    for index in range(2):
        pixels = (np.arange(6 * 8 * 3) * (7 + index) % 256).astype(np.uint8)
        with open(os.path.join(root, "a", f"{index}.ppm"), "wb") as file:
            file.write(b"P6\n8 6\n255\n" + pixels.tobytes())


def run(graph, **options):
    pipe = pipeline_def(graph, **options)(batch_size=2, num_threads=1, device_id=None)
    pipe.build()
    samples = [np.array(output.at(i)) for output in pipe.run() for i in range(2)]
    return [[sample.dtype.name, list(sample.shape), sample.tolist()] for sample in samples]


def image(layout="HWC", dtype=np.uint8):
    return types.Constant((np.arange(6 * 8 * 3) * 5 % 256).astype(dtype).reshape(6, 8, 3), layout=layout)


def decoded_in_every_colour(root):
    write_images(root)

    def graph():
        files, _ = fn.readers.file(file_root=root)
        kinds = (types.RGB, types.BGR, types.GRAY, types.YCbCr)
        return tuple(fn.decoders.image(files, output_type=kind) for kind in kinds)

    return run(graph)


def the_usual_training_images(root):
    write_images(root)

    def graph():
        files, labels = fn.readers.file(file_root=root, name="Reader")
        images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=(4, 4),
            mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
            std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
            mirror=1,
        )
        return images, labels

    return run(graph)


def crops_with_fractions():
    def graph():
        return (
            *(fn.crop(image(), crop=(4.7, 3.2)), fn.crop(image(), crop_h=4.7, crop_w=2.5)),
            *(fn.crop(image(), crop=(2.7, 1.2), crop_pos_x=0.3, crop_pos_y=0.6),),
            *(fn.crop_mirror_normalize(image(), crop=(4.7, 3.2), dtype=types.UINT8, output_layout="HWC"),),
        )

    return run(graph)


def windows_of_whole_axes():
    def graph():
        height, both = types.Constant(np.float32(0)), types.Constant(np.float32([0, 3]))
        return (
            *(fn.crop(image(), crop=both), fn.crop(image(), crop=(0, 3)), fn.crop(image(), crop=(0.5, 3))),
            *(fn.crop(image(), crop_h=height, crop_w=3.0),),
            *(fn.crop_mirror_normalize(image(), crop=both, dtype=types.UINT8, output_layout="HWC"),),
        )

    return run(graph)


def mirrored_volumes():
    def volume(layout):
        return types.Constant(np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2), layout=layout)

    def graph():
        return (
            *(fn.flip(volume(layout), depthwise=1, horizontal=0) for layout in ("DHWC", "CDHW", "FHWC")),
            *(fn.flip(image(), depthwise=1, vertical=1), fn.flip(volume("DHWC"), depthwise=types.Constant(1))),
            *(fn.shapes(volume("DHWC")), fn.shapes(image(), dtype=types.INT32)),
        )

    return run(graph)


def volumes_whose_axes_move():
    """As for U-Net: arrays of an unknown rank get the names of their axes, which move with them."""
    volume = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)

    def graph():
        named = fn.reshape(fn.external_source(source=lambda: [volume, volume + 1]), layout="CDHW")
        moved = fn.transpose(named, perm=[1, 2, 3, 0])
        cut = fn.slice(moved, start=[0, 1, 1], shape=[2, 2, 2], axes=(0, 1, 2), out_of_bounds_policy="pad")
        flipped = fn.flip(cut, horizontal=types.Constant(1), vertical=0, depthwise=1)
        return (
            *(fn.transpose(flipped, perm=[3, 0, 1, 2]), fn.reductions.sum(moved, axis_names="DC")),
            *(fn.flip(fn.squeeze(cut[:1], axes=[0])), fn.stack(cut, cut, axis_name="F").shape()),
        )

    return run(graph)


def sounds_without_a_sound():
    def graph():
        silence, tone = types.Constant(np.zeros(50, np.float32)), types.Constant(np.float32([0] * 20 + [1] * 30))
        return (
            *(*fn.nonsilent_region(silence), *fn.nonsilent_region(silence, window_length=16)),
            *(
                *fn.nonsilent_region(silence, reference_power=0.5, window_length=16),
                *fn.nonsilent_region(tone, window_length=16),
            ),
        )

    return run(graph)


def windows_by_position_and_name():
    def graph():
        numbers = types.Constant(np.arange(10, dtype=np.int32))
        anchor, shape = types.Constant(np.float32([0.2])), types.Constant(np.float32([0.5]))
        return (
            *(fn.slice(numbers, 0.2, 0.5, axes=(0,)), fn.slice(numbers, [0.2], [0.5], axes=(0,))),
            *(fn.slice(numbers, 2, 5, axes=(0,)), fn.slice(numbers, anchor, shape, axes=(0,))),
            *(
                fn.slice(numbers, start=2, shape=5, axes=(0,)),
                fn.slice(numbers, rel_start=0.15, rel_shape=0.5, axes=(0,)),
            ),
            *(fn.slice(numbers, 0.05, 0.5, axes=(0,)), fn.slice(image(), [0.25, 0.5], [0.5, 0.5], axis_names="WH")),
        )

    return run(graph)


def flips_and_sizes():
    def graph():
        sizes = fn.resize(image(), resize_x=20.7, resize_y=10.2).shape(), fn.resize(image(), size=(4.5, 3.2)).shape()
        nearest = fn.resize(image(), size=(3, 4), interp_type=types.INTERP_NN, antialias=False)
        return fn.flip(image()), fn.flip(image(), horizontal=0, vertical=1), nearest, *sizes

    return run(graph)


def colours():
    def graph():
        return (
            fn.brightness_contrast(image(), brightness=1.5, contrast=0.7),
            fn.brightness_contrast(image(dtype=np.float32), brightness_shift=0.25, contrast=2.0),
        )

    return run(graph)


def joined_and_padded():
    def graph():
        short, long = types.Constant(np.uint8([1, 2])), types.Constant(np.uint8([3, 4, 5]))
        return (
            *(
                fn.cat(short, long, axis=0),
                fn.stack(short, short, axis=1),
                fn.pad(short, axes=(0,), shape=(4,), fill_value=9),
            ),
            *(
                fn.one_hot(types.Constant(2, shape=()), num_classes=4),
                fn.normalize(types.Constant(np.float32([1, 2, 3, 4]))),
            ),
            *(fn.reshape(long, shape=[3, 1]), fn.reinterpret(types.Constant(np.uint32([1])), dtype=types.UINT8)),
        )

    return run(graph)


def branches_by_sample():
    def graph():
        number = fn.external_source(source=lambda info: np.int32(info.idx_in_batch), batch=False)
        if number > 0:
            result = number * 10
        else:
            result = number - 1
        is_odd = number % 2 == 1
        both = "odd" if is_odd is None else (is_odd and number < 5)
        neither = not is_odd
        return result, both, neither

    return run(graph, enable_conditionals=True)


def a_function_without_branches():
    @do_not_convert
    def plain(flag):
        return 2 if flag else 3

    def graph():
        number = fn.external_source(source=lambda info: np.float32(info.idx_in_batch), batch=False)
        if number == 0:
            number = number + plain(True)
        return number, number + plain(False)

    return run(graph, enable_conditionals=True)


def functions_of_python():
    def graph():
        numbers = types.Constant(np.float32([1, 2]))
        return fn.python_function(numbers, function=lambda one: one * 3), *fn.python_function(
            numbers, numbers, function=lambda a, b: (a + b, a - b), num_outputs=2
        )

    pipe = pipeline_def(graph)(batch_size=2, num_threads=1, device_id=None, exec_async=False, exec_pipelined=False)
    pipe.build()
    return [output.as_array().tolist() for output in pipe.run()]


def statistics_of_draws():
    def graph():
        return (
            *(fn.random.uniform(range=(2.0, 4.0), shape=(2000,)), fn.random.uniform(values=[1.0, 5.0], shape=(2000,))),
            *(
                fn.random.normal(mean=3.0, stddev=2.0, shape=(2000,)),
                fn.random.coin_flip(probability=0.25, shape=(2000,)),
            ),
        )

    found = []
    pipe = pipeline_def(graph)(batch_size=2, num_threads=1, device_id=None, seed=5)
    pipe.build()
    for output in pipe.run():
        drawn = output.as_array()
        found.append([drawn.dtype.name, list(drawn.shape), round(float(drawn.mean()), 0), round(float(drawn.std()), 0)])
    return found
