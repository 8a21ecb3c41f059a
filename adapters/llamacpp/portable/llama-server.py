#!/usr/bin/env python3
"""llama-server out of the Python package xllamacpp, which has no such binary.

It takes llama-server's own flags, those that the table below names, and refuses
others by name. It lies in the folder bin below the folder of the package.
It reads no LLAMA_ARG_* variables: one that is set is refused by name.
"""
import json
import os
import signal
import sys
import time


class Refused(Exception):
    pass


def integer(text):
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{text!r} is no integer") from None


def number(text):
    try:
        return float(text)
    except ValueError:
        raise Refused(f"{text!r} is no number") from None


def one_of(**values):
    def parse(text):
        if text not in values:
            raise Refused(f"{text!r} is none of {', '.join(values)}")
        return values[text]
    return parse


def member(enum, prefix):
    """The members of an enum of xllamacpp by the lower-case rest of their names."""
    def parse(text):
        names = {m.name[len(prefix):].lower(): m for m in getattr(xllamacpp, enum)}
        return one_of(**names)(text)
    return parse


def cache_type(text):
    kinds = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
    return one_of(**{k: getattr(xllamacpp.ggml_type, "GGML_TYPE_" + k.upper()) for k in kinds})(text)


def flash(text):
    kinds = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    return getattr(xllamacpp.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + one_of(**kinds)(text))


def content(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except (OSError, UnicodeDecodeError) as e:
        raise Refused(f"{path!r}: {e}") from None


def sets(field, parse):
    """A flag with a value that becomes a field of the parameters."""
    def put(params, text):
        where, names = params, field.split(".")
        for name in names[:-1]:
            where = getattr(where, name)
        setattr(where, names[-1], parse(text))
    put.takes = 1
    return put


def turns(field, value):
    """A flag without a value."""
    def put(params):
        setattr(params, field, value)
    put.takes = 0
    return put


def threads(params, text):
    params.cpuparams.n_threads = integer(text)


def threads_batch(params, text):
    params.cpuparams_batch.n_threads = integer(text)


def no_device(_, text):
    if text != "none":
        raise Refused(f"{text!r}: this package computes on the processor, so only none is possible")


def loras(params, text):
    for part in text.split(","):
        add_lora(params, part, 1.0)


def scaled_loras(params, text):
    for part in text.split(","):
        path, colon, scale = part.rpartition(":")
        if not colon:
            raise Refused(f"{part!r} is not FILE:SCALE")
        add_lora(params, path, number(scale))


def add_lora(params, path, scale):
    if not os.path.isfile(path):
        raise Refused(f"{path!r} is no file")
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, scale
    params.lora_adapters = list(params.lora_adapters) + [adapter]


def kwargs(text):
    try:
        value = json.loads(text)
    except ValueError as e:
        raise Refused(f"{text!r} is no JSON: {e}") from None
    if not isinstance(value, dict):
        raise Refused(f"{text!r} is no JSON object")
    return {k: json.dumps(v) for k, v in value.items()}


for _f in (threads, threads_batch, no_device, loras, scaled_loras):
    _f.takes = 1

FLAGS = {}
for _names, _put in {
    "-m --model": sets("model.path", str),
    "-a --alias": sets("model_alias", lambda text: set(text.split(","))),
    "--host": sets("hostnames", lambda text: [text]),
    "--port": sets("port", integer),
    "-c --ctx-size": sets("n_ctx", integer),
    "-np --parallel": sets("n_parallel", integer),
    "-n --predict --n-predict": sets("n_predict", integer),
    "-b --batch-size": sets("n_batch", integer),
    "-ub --ubatch-size": sets("n_ubatch", integer),
    "-t --threads": threads,
    "-tb --threads-batch": threads_batch,
    "--threads-http": sets("n_threads_http", integer),
    "-to --timeout": lambda params, text: [setattr(params, f, integer(text)) for f in ("timeout_read", "timeout_write")],
    "-ngl --gpu-layers --n-gpu-layers": sets("n_gpu_layers", integer),
    "-dev --device": no_device,
    "-fa --flash-attn": sets("flash_attn_type", flash),
    "-ctk --cache-type-k": sets("cache_type_k", cache_type),
    "-ctv --cache-type-v": sets("cache_type_v", cache_type),
    "-kvu --kv-unified": turns("kv_unified", True),
    "-no-kvu --no-kv-unified": turns("kv_unified", False),
    "--swa-full": turns("swa_full", True),
    "--context-shift": turns("ctx_shift", True),
    "--no-context-shift": turns("ctx_shift", False),
    "--cache-reuse": sets("n_cache_reuse", integer),
    "-cram --cache-ram": sets("cache_ram_mib", integer),
    "--cache-prompt": turns("cache_prompt", True),
    "--no-cache-prompt": turns("cache_prompt", False),
    "-sps --slot-prompt-similarity": sets("slot_prompt_similarity", number),
    "--slot-save-path": sets("slot_save_path", str),
    "--slots": turns("endpoint_slots", True),
    "--no-slots": turns("endpoint_slots", False),
    "--metrics": turns("endpoint_metrics", True),
    "--props": turns("endpoint_props", True),
    "--ui --webui": turns("ui", True),
    "--no-ui --no-webui": turns("ui", False),
    "--warmup": turns("warmup", True),
    "--no-warmup": turns("warmup", False),
    "-lm --load-mode": sets("load_mode", member("llama_load_mode", "LLAMA_LOAD_MODE_")),
    "--check-tensors": turns("check_tensors", True),
    "-lv --verbosity --log-verbosity": sets("verbosity", integer),
    "--api-key": sets("api_keys", lambda text: text.split(",")),
    "--jinja": turns("use_jinja", True),
    "--no-jinja": turns("use_jinja", False),
    "--chat-template": sets("chat_template", str),
    "--chat-template-file": sets("chat_template", content),
    "--chat-template-kwargs": sets("default_template_kwargs", kwargs),
    "--reasoning-format": sets("reasoning_format", member("common_reasoning_format", "COMMON_REASONING_FORMAT_")),
    "--lora": loras,
    "--lora-scaled": scaled_loras,
    "--rope-scaling": sets("rope_scaling_type", member("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_")),
    "--rope-scale": sets("rope_freq_scale", lambda text: 1 / number(text)),
    "--rope-freq-base": sets("rope_freq_base", number),
    "--rope-freq-scale": sets("rope_freq_scale", number),
    "--yarn-orig-ctx": sets("yarn_orig_ctx", integer),
    "--yarn-ext-factor": sets("yarn_ext_factor", number),
    "--yarn-attn-factor": sets("yarn_attn_factor", number),
    "--yarn-beta-slow": sets("yarn_beta_slow", number),
    "--yarn-beta-fast": sets("yarn_beta_fast", number),
}.items():
    if not hasattr(_put, "takes"):
        _put.takes = 1
    for _name in _names.split():
        FLAGS[_name] = _put


def parse(args, params):
    at = 0
    while at < len(args):
        flag = args[at]
        put = FLAGS.get(flag)
        if put is None:
            raise Refused(f"{flag} is no flag that this server takes; --help lists those that it takes")
        values = args[at + 1:at + 1 + put.takes]
        if len(values) < put.takes:
            raise Refused(f"{flag} needs a value")
        try:
            put(params, *values)
        except (Refused, ZeroDivisionError, OverflowError, TypeError, ValueError) as e:
            raise Refused(f"{flag}: {e}") from None
        at += 1 + put.takes


def main(args):
    with open("/proc/self/comm", "w", encoding="ascii") as f:
        f.write("llama-server")  # for ps and top, which would say python3
    if args == ["--version"]:
        print(f"version: xllamacpp {xllamacpp.__version__}")
        print(f"system_info: {xllamacpp.get_system_info()}")
        return
    if args in (["-h"], ["--help"]):
        print(f"usage: llama-server FLAGS, of xllamacpp {xllamacpp.__version__}\n{' '.join(FLAGS)}")
        return
    for name in os.environ:
        if name.startswith("LLAMA_"):
            raise Refused(f"the environment has {name}, and this server takes flags only")
    params = xllamacpp.CommonParams()
    params.port = 8080
    cores = len(os.sched_getaffinity(0))
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = cores, -1
    parse(args, params)
    if params.cpuparams.n_threads < 1:
        params.cpuparams.n_threads = cores
    if params.cpuparams_batch.n_threads < 1:
        params.cpuparams_batch.n_threads = params.cpuparams.n_threads
    if not os.path.isfile(params.model.path):
        raise Refused(f"--model: {params.model.path!r} is no file")
    if params.slot_save_path:
        if not os.path.isdir(params.slot_save_path):
            raise Refused(f"--slot-save-path: {params.slot_save_path!r} is no folder")
        params.slot_save_path = os.path.join(params.slot_save_path, "")  # the server appends file names
    # Whoever reads why the process was killed needs to know what it was built for.
    print(f"llama-server: xllamacpp {xllamacpp.__version__}, system_info: {xllamacpp.get_system_info()}", file=sys.stderr, flush=True)
    server = xllamacpp.Server(params)  # listens once it returns, with the model loaded
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: os._exit(0))
    print("llama-server: listening on", server.listening_address, file=sys.stderr, flush=True)
    while True:
        signal.pause()


def last_word(text):
    """Ends the process with text as the last line. The library logs from a thread of its own: what it still
    has is given a moment, and what comes later goes nowhere, so that nothing follows the reason."""
    time.sleep(0.2)
    said = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.write(said, (text + "\n").encode(errors="replace"))
    os._exit(1)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    try:
        import xllamacpp
        main(sys.argv[1:])
    except (ImportError, AttributeError) as e:  # AttributeError: another version of the package
        sys.exit(f"llama-server: the Python package xllamacpp cannot be used: {e}")
    except Refused as e:
        sys.exit(f"llama-server: {e}")
    except RuntimeError as e:
        last_word(f"llama-server: the model cannot be served: {e}")
