# The probe's own sources, for the normal build and for the single file of hardware-probe/portable.
set(LOCKSTEP_PROBE_SOURCES
  app/child_executor.cpp
  cards/card_database.cpp
  checks/check_table.cpp
  checks/compute_checks.cpp
  checks/context.cpp
  checks/event_checks.cpp
  checks/host_checks.cpp
  checks/identity_checks.cpp
  checks/link_checks.cpp
  checks/memory_checks.cpp
  checks/pcie_checks.cpp
  checks/thermal_checks.cpp
  collect/collect.cpp
  collect/measure.cpp
  collect/peers.cpp
  collect/steps.cpp
  kernels/golden.cpp
  observe/observations.cpp
  observe/pcie_rate.cpp
  real/cuda.cpp
  real/dynamic_library.cpp
  real/embedded_kernels.cpp
  real/kernel_answers.cpp
  real/kernel_libraries.cpp
  real/load.cpp
  real/nvml.cpp
  real/real_backend.cpp
  real/real_memory.cpp
  real/real_peers.cpp
  real/system_facts.cpp
  report/compare.cpp
  report/html_plots.cpp
  report/judgement.cpp
  report/machine.cpp
  report/profile.cpp
  report/report_html.cpp
  report/report_json.cpp
  report/report_text.cpp
  report/signature.cpp
  report/summary.cpp
  sim/faults.cpp
  sim/machine.cpp
  sim/sim_backend.cpp
  sim/sim_card.cpp
  sim/sim_memory.cpp)

set(LOCKSTEP_PROBE_KERNELS kernels/probe_kernels.cu)

# Embeds the card database: configure again when a file changes.
function(lockstep_embed_cards source_dir output)
  file(READ ${source_dir}/cards/volta.json LOCKSTEP_CARDS_VOLTA)
  file(READ ${source_dir}/cards/others.json LOCKSTEP_CARDS_OTHERS)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${source_dir}/cards/volta.json ${source_dir}/cards/others.json)
  configure_file(${source_dir}/cards/embedded_cards.cpp.in ${output} @ONLY)
endfunction()
