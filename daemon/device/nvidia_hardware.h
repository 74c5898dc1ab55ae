// Whether this machine has an NVIDIA GPU, asked without its driver: a driver that does not work
// must not look like a machine without a GPU.
#ifndef CONCERT_DAEMON_DEVICE_NVIDIA_HARDWARE_H_
#define CONCERT_DAEMON_DEVICE_NVIDIA_HARDWARE_H_

#include <string>

namespace concert::daemon {

// What speaks for one: "PCI device 0000:1b:00.0, /dev/nvidia0 and the kernel module nvidia". Empty:
// nothing. `root` is the folder that holds sys/ and dev/, "/" but in tests. A few file reads.
std::string FindNvidiaHardware(const std::string& root = "/");

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_DEVICE_NVIDIA_HARDWARE_H_
