package identity

import (
	"fmt"
	"slices"
	"strings"
)

// plainEnv are variables that a llama-server gets and that change no KV.
var plainEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
	"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "CUDA_CACHE_PATH",
	"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
	"VK_ICD_FILENAMES", "VK_DRIVER_FILES", "ZE_AFFINITY_MASK", "OMP_NUM_THREADS",
}

// deviceEnv are the beginnings of variables that a llama-server gets because its
// devices may need them. Some change what is computed.
var deviceEnv = []string{"GGML_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "VK_", "ZE_", "SYCL_", "ONEAPI_", "OMP_", "KMP_"}

// ignoredEnv are variables of llama-server that change no KV, are not handed on,
// and that images and desktops set.
var ignoredEnv = []string{"LLAMA_CACHE", "LLAMA_ARG_HOST", "LLAMA_ARG_PORT"}

// ignoredPrefix are those of its log.
var ignoredPrefix = []string{"LLAMA_LOG_", "LLAMA_ARG_LOG_"}

// Env is the environment of a llama-server out of that of its parent: what is not
// known to be of use is left out.
func Env(parent []string) []string {
	var out []string
	for _, v := range parent {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(plainEnv, name) || strings.HasPrefix(name, "LC_") || begins(name, deviceEnv) {
			out = append(out, v)
		}
	}
	return out
}

// CheckEnv refuses a parent's variables that llama-server would take for settings.
// They would not reach it, and who set them should know.
func CheckEnv(parent []string) error {
	var names []string
	for _, v := range parent {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "LLAMA_") && !slices.Contains(ignoredEnv, name) && !begins(name, ignoredPrefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("the environment has %s, which llama-server is not given: unset it, or say the same by an argument in llama.args", strings.Join(names, ", "))
}

// envKey lists what of a child's environment may change KV.
func envKey(child []string) []string {
	var out []string
	for _, v := range child {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(plainEnv, name) && begins(name, deviceEnv) {
			out = append(out, "env "+v)
		}
	}
	slices.Sort(out)
	return out
}

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
