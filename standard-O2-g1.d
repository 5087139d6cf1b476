standard-O2-g1.o: build/cpu-native/standard-O2-g1.h dev/make/standard.h
dev/make/standard.h:
