// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <SoapySDR/Types.hpp>
#include <string>

#include "gpumap/printable.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio.hpp"

namespace {

struct GstSoapyDevice {
  GstDevice base;
  std::string* arguments;
};
struct GstSoapyDeviceClass {
  GstDeviceClass base;
};
struct GstSoapyDeviceProvider {
  GstDeviceProvider base;
};
struct GstSoapyDeviceProviderClass {
  GstDeviceProviderClass base;
};

}  // namespace

G_DEFINE_TYPE(GstSoapyDevice, gst_soapy_device, GST_TYPE_DEVICE)
G_DEFINE_TYPE(GstSoapyDeviceProvider, gst_soapy_device_provider, GST_TYPE_DEVICE_PROVIDER)
GST_DEVICE_PROVIDER_REGISTER_DEFINE(soapydeviceprovider, "soapydeviceprovider", GST_RANK_MARGINAL,
                                    gst_soapy_device_provider_get_type())

namespace {

const std::string& arguments_of(GstDevice* device) {
  return *reinterpret_cast<GstSoapyDevice*>(device)->arguments;
}

GstElement* create_element(GstDevice* device, const gchar* name) {
  GstElement* made = gst_element_factory_make("soapysrc", name);
  if (made != nullptr) g_object_set(made, "device", arguments_of(device).c_str(), nullptr);
  return made;
}

gboolean reconfigure_element(GstDevice* device, GstElement* element) {
  GstElementFactory* factory = gst_element_get_factory(element);
  if (factory == nullptr || g_strcmp0(GST_OBJECT_NAME(factory), "soapysrc") != 0) return FALSE;
  g_object_set(element, "device", arguments_of(device).c_str(), nullptr);
  return TRUE;
}

GstDevice* device_of(const SoapySDR::Kwargs& radio) {
  const auto label = radio.find("label");
  const std::string arguments = SoapySDR::KwargsToString(radio);
  const gpumap::gst::Ptr<GstCaps> caps(gpumap::gst::radio_caps());
  const gpumap::gst::Ptr<GstStructure> properties(gst_structure_new_empty("soapy-properties"));
  for (const auto& [key, value] : radio) {
    // A serial number may be what an empty EEPROM has.
    gst_structure_set(properties.get(), key.c_str(), G_TYPE_STRING, gpumap::printable(value).c_str(), nullptr);
  }
  auto* made = static_cast<GstSoapyDevice*>(
      g_object_new(gst_soapy_device_get_type(), "display-name",
                   gpumap::printable(label != radio.end() ? label->second : arguments).c_str(), "caps", caps.get(),
                   "device-class", "Source/Radio", "properties", properties.get(), nullptr));
  *made->arguments = arguments;
  return GST_DEVICE_CAST(made);
}

GList* probe(GstDeviceProvider* provider) {
  const gpumap::gst::RadioSearch search = gpumap::gst::find_radios({}, gpumap::gst::radio_search_limit);
  for (const std::string& driver : search.silent) {
    GST_WARNING_OBJECT(provider, "the driver %s did not answer in time: its radios are not listed", driver.c_str());
  }
  GList* devices = nullptr;
  for (const SoapySDR::Kwargs& radio : search.found) devices = g_list_append(devices, device_of(radio));
  return devices;
}

}  // namespace

static void gst_soapy_device_class_init(GstSoapyDeviceClass* klass) {
  klass->base.create_element = create_element;
  klass->base.reconfigure_element = reconfigure_element;
  G_OBJECT_CLASS(klass)->finalize = [](GObject* object) {
    delete reinterpret_cast<GstSoapyDevice*>(object)->arguments;
    G_OBJECT_CLASS(gst_soapy_device_parent_class)->finalize(object);
  };
}

static void gst_soapy_device_init(GstSoapyDevice* self) {
  self->arguments = new std::string;
}

static void gst_soapy_device_provider_class_init(GstSoapyDeviceProviderClass* klass) {
  klass->base.probe = probe;
  gst_device_provider_class_set_static_metadata(&klass->base, "Radios", "Source/Radio",
                                                "Lists the radios that SoapySDR finds", "The gpumap authors");
}

static void gst_soapy_device_provider_init(GstSoapyDeviceProvider* /*self*/) {}
