// Runs a file of flows through SimGrid and prints makespan (s) and CPU time (s); see flows.py.
// Build: g++ -O2 -std=c++17 flows_peer.cpp -o flows_peer -lsimgrid, with SimGrid 4.1 or later
//
// File: "hosts links flows", then a line "bytes/s latency" for each link, then for each flow
// "source destination bytes hops link...". The fluid model alone: no window, no cross-traffic, no correction.
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <set>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace s4u = simgrid::s4u;

struct Flow {
  int source = 0, destination = 0;
  double bytes = 0.0;
};

int main(int argc, char** argv)
{
  s4u::Engine engine(&argc, argv);
  for (const char* option : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0",
                             "precision/work-amount:1e-13", "precision/timing:1e-15"})
    s4u::Engine::set_config(option);
  std::ifstream file(argv[1]);
  int hosts = 0, links = 0, flows = 0;
  file >> hosts >> links >> flows;
  auto* zone = engine.get_netzone_root()->add_netzone_full("zone");
  std::vector<s4u::Host*> host;
  for (int i = 0; i < hosts; i++)
    host.push_back(zone->add_host("h" + std::to_string(i), 1e9));
  std::vector<s4u::Link*> link;
  for (int i = 0; i < links; i++) {
    double rate = 0.0, latency = 0.0;
    file >> rate >> latency;
    link.push_back(zone->add_link("l" + std::to_string(i), rate)->set_latency(latency)->seal());
  }
  std::vector<Flow> flow(flows);
  std::set<std::pair<int, int>> known;
  for (auto& one : flow) {
    int hops = 0;
    file >> one.source >> one.destination >> one.bytes >> hops;
    std::vector<s4u::LinkInRoute> route;
    for (int i = 0, number = 0; i < hops; i++) {
      file >> number;
      route.emplace_back(link[number]);
    }
    if (known.insert({one.source, one.destination}).second)
      zone->add_route(host[one.source], host[one.destination], route, false);
  }
  zone->seal();
  const auto start = std::clock();
  host[0]->add_actor("sender", [&] {
    s4u::ActivitySet sent;
    for (const auto& one : flow)
      sent.push(s4u::Comm::sendto_async(host[one.source], host[one.destination], one.bytes));
    sent.wait_all();
  });
  engine.run();
  std::cout << std::setprecision(17) << s4u::Engine::get_clock() << " "
            << double(std::clock() - start) / CLOCKS_PER_SEC << "\n";
}
