// An agent of a run with run.elastic: the process that a person or a launcher starts, one a host. It starts
// run.slots ranks as children, keeps their images, and outlives them. The agent with the lease is the
// controller as well.
#pragma once

inline namespace config { struct Options; }

inline namespace agents {

// Where the command line or its config asks for run.elastic: runs the agent until the job ends, and returns
// its exit code. Else, and in a rank of an agent, returns -1. Call before there is a second thread.
int be_agent(int argc, char** argv, void (*complete)(Options&) = nullptr);

}  // namespace agents
