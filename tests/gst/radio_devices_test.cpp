// SPDX-License-Identifier: MIT
// How radios are found, and one that is reached over the network.
#include <gio/gio.h>
#include <gmock/gmock.h>

#include <SoapySDR/Device.hpp>
#include <SoapySDR/Registry.hpp>
#include <SoapySDR/Version.hpp>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "gst/radio/radio.hpp"
#include "launched.hpp"
#include "soapysrc_sides.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap::gst::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(SoapySrc, TheProviderListsRadios) {
  const Ptr<GstDeviceProvider> provider(gst_device_provider_factory_get_by_name("soapydeviceprovider"));
  ASSERT_TRUE(provider);
  GList* devices = gst_device_provider_get_devices(provider.get());
  ASSERT_EQ(g_list_length(devices), 1U);
  auto* device = GST_DEVICE(devices->data);
  const Ptr<gchar> name(gst_device_get_display_name(device));
  EXPECT_STREQ(name.get(), "Made-up radio");
  EXPECT_TRUE(gst_device_has_classes(device, "Source/Radio"));
  const Ptr<GstStructure> told(gst_device_get_properties(device));
  EXPECT_STREQ(gst_structure_get_string(told.get(), "driver"), "made-up");
  EXPECT_STREQ(gst_structure_get_string(told.get(), "serial"), "17");
  const Element element(GST_ELEMENT(gst_object_ref_sink(gst_device_create_element(device, nullptr))));
  ASSERT_TRUE(element);
  gchar* arguments = nullptr;
  g_object_get(element.get(), "device", &arguments, nullptr);
  const Ptr<gchar> owned(arguments);
  EXPECT_THAT(std::string(arguments), AllOf(HasSubstr("driver=made-up"), HasSubstr("serial=17")));
  g_list_free_full(devices, gst_object_unref);
}

// An empty EEPROM has no text.
TEST_F(SoapySrc, TheProviderListsARadioWithoutAName) {
  radio_.garbled = true;
  const Ptr<GstDeviceProvider> provider(gst_device_provider_factory_get_by_name("soapydeviceprovider"));
  ASSERT_TRUE(provider);
  GList* devices = gst_device_provider_get_devices(provider.get());
  ASSERT_EQ(g_list_length(devices), 1U);
  const Ptr<gchar> name(gst_device_get_display_name(GST_DEVICE(devices->data)));
  EXPECT_STREQ(name.get(), "\\xff\\xfe radio");
  const Ptr<GstStructure> told(gst_device_get_properties(GST_DEVICE(devices->data)));
  EXPECT_STREQ(gst_structure_get_string(told.get(), "label"), "\\xff\\xfe radio");
  g_list_free_full(devices, gst_object_unref);
}

/// SoapySDRServer with the radio that is made up, in a process that is killed at the latest with its owner.
class Server {
 public:
  explicit Server(const std::string& address) {
    const std::string bound = "--bind=" + address;
    std::array<char*, 3> argv{const_cast<char*>("SoapySDRServer"), const_cast<char*>(bound.c_str()), nullptr};
    if (posix_spawnp(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) pid_ = -1;
  }
  ~Server() {
    if (!runs()) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  [[nodiscard]] bool runs() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
  }

 private:
  pid_t pid_ = -1;
};

/// A port of this machine that is free, and whether someone answers there.
int free_port() {
  const Ptr<GObject> listener(G_OBJECT(g_socket_listener_new()));
  const guint16 port = g_socket_listener_add_any_inet_port(G_SOCKET_LISTENER(listener.get()), nullptr, nullptr);
  g_socket_listener_close(G_SOCKET_LISTENER(listener.get()));
  return port;
}
bool is_served(int port) {
  const Ptr<GObject> client(G_OBJECT(g_socket_client_new()));
  const Ptr<GObject> connection(G_OBJECT(g_socket_client_connect_to_host(
      G_SOCKET_CLIENT(client.get()), "127.0.0.1", static_cast<guint16>(port), nullptr, nullptr)));
  return connection != nullptr;
}

// SoapyRemote: the radio is another process's, and samples come by TCP.
TEST_F(SoapySrc, ReceivesFromARadioOverTheNetwork) {
  const char* made_up = std::getenv("GPUMAP_MADE_UP_RADIO");
  const char* remote = std::getenv("GPUMAP_SOAPY_REMOTE");
  if (made_up == nullptr || remote == nullptr || !std::filesystem::exists(remote)) {
    GTEST_SKIP() << "no module of SoapyRemote: install soapysdr-module-remote and soapyremote-server";
  }
  if (sanitized) GTEST_SKIP() << "a plugin with a sanitizer does not load into a gst-launch-1.0 without";
  const TemporaryFolder folder;
  for (const auto& [name, module] : {std::pair{"server", made_up}, {"client", remote}}) {
    std::filesystem::create_directory(folder.path() / name);
    std::filesystem::create_symlink(module, folder.path() / name / "module.so");
  }
  const int port = free_port();
  const std::string address = "tcp://127.0.0.1:" + std::to_string(port);
  setenv("SOAPY_SDR_PLUGIN_PATH", (folder.path() / "server").c_str(), 1);
  Server server(address);
  setenv("SOAPY_SDR_PLUGIN_PATH", (folder.path() / "client").c_str(), 1);
  const char* ended = "SoapySDRServer does not run here: older versions need avahi-daemon";
  if (!eventually([&] { return !server.runs() || is_served(port); }) || !server.runs()) {
    unsetenv("SOAPY_SDR_PLUGIN_PATH");
    GTEST_SKIP() << ended;
  }
  const std::string file = folder.path() / "samples";
  Launched launched("soapysrc device=\"driver=remote,remote=" + address + ",remote:driver=made-up\" " +
                    "stream-arguments=remote:prot=tcp rate=1000000 num-buffers=20 ! gpumapupload ! "
                    "gpumapkernel kernel=identity ! filesink location=" +
                    file);
  const bool received = launched.succeeded();
  unsetenv("SOAPY_SDR_PLUGIN_PATH");
  // It answers before it looks for that daemon, and ends then.
  if (!received && eventually([&] { return !server.runs(); }, at_once)) GTEST_SKIP() << ended;
  EXPECT_TRUE(received);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const Data expected = expected_samples("CS16", 0, 200000);
  ASSERT_EQ(bytes.size(), expected.size());
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0);
}

std::atomic<bool> answers{false};

// Nobody can be asked: no radio is found, and no exception leaves a thread of GStreamer's.
TEST_F(SoapySrc, ASearchWithoutThreadsFindsNothing) {
  (void)find_radios({}, 10s);  // loads the modules
  const gpumap::test::NoThreads none;
  const RadioSearch search = find_radios({}, 10s);
  EXPECT_THAT(search.found, IsEmpty());
  EXPECT_THAT(search.silent, Contains("made-up"));
}

// A driver that does not answer costs its own radios alone.
TEST_F(SoapySrc, ASearchEnds) {
  const SoapySDR::Registry slow(
      "slow",
      [](const SoapySDR::Kwargs&) -> SoapySDR::KwargsList {
        (void)eventually([] { return answers.load(); });
        return {{{"label", "late"}}, {}};
      },
      [](const SoapySDR::Kwargs&) -> SoapySDR::Device* { return nullptr; }, SOAPY_SDR_ABI_VERSION);
  answers = false;
  EXPECT_EQ(best_of_longer_limits([](Time limit) -> std::string {
              const RadioSearch search = find_radios({}, limit);
              if (search.found.size() != 1 || search.found[0].at("driver") != "made-up") return "not the one radio";
              return search.silent == std::vector<std::string>{"slow"} ? "" : "not the slow driver alone is silent";
            }),
            "");
  answers = true;
  EXPECT_TRUE(eventually([&] { return find_radios({}, 10s).found.size() == 2; }));
}

}  // namespace
}  // namespace gpumap::gst::test
