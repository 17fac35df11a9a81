// RUN: xdsl-opt -p 'diagram-reassociate{sums=A chunk=64}' %s | filecheck %s
// RUN: xdsl-opt -p 'diagram-reassociate{sums=A chunk=64}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'diagram-reassociate{sums=A chunk=64,2}' %s | filecheck %s --check-prefix DEEP
// RUN: xdsl-opt -p 'diagram-reassociate{sums=A parts=2 chunk=64}' %s | filecheck %s --check-prefix PARTS

!Q = tensor<256x64xf16, #diagram.array<[q, d]>>
!K = tensor<256x64xf16, #diagram.array<[x, d]>>
!V = tensor<256x32xf16, #diagram.array<[x, e]>>
!S = tensor<256x256xf32, #diagram.array<[q, x]>>
!S16 = tensor<256x256xf16, #diagram.array<[q, x]>>
!n = tensor<256xf32, #diagram.array<[q]>>
!m = tensor<256xf32, #diagram.array<[x]>>
!O = tensor<256x32xf32, #diagram.array<[q, e]>>
!O16 = tensor<256x32xf16, #diagram.array<[q, e]>>
!Ks = tensor<?x64xf16, #diagram.array<[x, d]>>
!Vs = tensor<?x32xf16, #diagram.array<[x, e]>>
!Qs = tensor<?x64xf16, #diagram.array<[q, d]>>
!Ss = tensor<?x?xf32, #diagram.array<[q, x]>>
!Ss16 = tensor<?x?xf16, #diagram.array<[q, x]>>
!Os = tensor<?x32xf32, #diagram.array<[q, e]>>


// (A B) C is A (B C). The state of the sum stays in f32; where the program rounds to f16 it is multiplied as tf32.

// CHECK-LABEL: func.func @without_condition
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S", "associativity of the product", "">]
// CHECK-NEXT: %A_state = diagram.contract %K, %V over [x] accumulate f32 : tensor<256x64xf16, #diagram.array<[x, d]>>, tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<64x32xf32, #diagram.array<[d, e]>>
// CHECK-NEXT: %Q_1 = diagram.cast %Q : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<256x64xf32, #diagram.array<[q, d]>>
// CHECK-NEXT: %A = diagram.contract %Q_1, %A_state over [d] accumulate f32 as tf32 : tensor<256x64xf32, #diagram.array<[q, d]>>, tensor<64x32xf32, #diagram.array<[d, e]>> -> tensor<256x32xf32, #diagram.array<[q, e]>>
// CHECK-NEXT: func.return %A : tensor<256x32xf32, #diagram.array<[q, e]>>
// In two parts: a number of bf16, and what is left.

// PARTS-LABEL: func.func @without_condition
// PARTS-NEXT: %A_state = diagram.contract %K, %V over [x] accumulate f32 : tensor<256x64xf16, #diagram.array<[x, d]>>, tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<64x32xf32, #diagram.array<[d, e]>>
// PARTS-NEXT: %A_state_1 = diagram.cast %A_state : tensor<64x32xf32, #diagram.array<[d, e]>> -> tensor<64x32xbf16, #diagram.array<[d, e]>>
// PARTS-NEXT: %A_state_2 = diagram.cast %A_state_1 : tensor<64x32xbf16, #diagram.array<[d, e]>> -> tensor<64x32xf32, #diagram.array<[d, e]>>
// PARTS-NEXT: %low = diagram.map (%a_state = %A_state : tensor<64x32xf32, #diagram.array<[d, e]>>, %a_state_1 = %A_state_2 : tensor<64x32xf32, #diagram.array<[d, e]>>) -> tensor<64x32xf32, #diagram.array<[d, e]>> {
// PARTS-NEXT: %0 = arith.subf %a_state, %a_state_1 : f32
// PARTS-NEXT: diagram.yield %0 : f32
// PARTS-NEXT: }
// PARTS-NEXT: %Q_1 = diagram.cast %Q : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<256x64xf32, #diagram.array<[q, d]>>
// PARTS-NEXT: %of_high = diagram.contract %Q_1, %A_state_2 over [d] accumulate f32 as tf32 : tensor<256x64xf32, #diagram.array<[q, d]>>, tensor<64x32xf32, #diagram.array<[d, e]>> -> tensor<256x32xf32, #diagram.array<[q, e]>>
// PARTS-NEXT: %of_low = diagram.contract %Q_1, %low over [d] accumulate f32 as tf32 : tensor<256x64xf32, #diagram.array<[q, d]>>, tensor<64x32xf32, #diagram.array<[d, e]>> -> tensor<256x32xf32, #diagram.array<[q, e]>>
// PARTS-NEXT: %A = diagram.map (%of_high_1 = %of_high : tensor<256x32xf32, #diagram.array<[q, e]>>, %of_low_1 = %of_low : tensor<256x32xf32, #diagram.array<[q, e]>>) -> tensor<256x32xf32, #diagram.array<[q, e]>> {
// PARTS-NEXT: %0 = arith.addf %of_high_1, %of_low_1 : f32
// PARTS-NEXT: diagram.yield %0 : f32
// PARTS-NEXT: }
// PARTS-NEXT: func.return %A : tensor<256x32xf32, #diagram.array<[q, e]>>
func.func @without_condition(%Q: !Q, %K: !K, %V: !V) -> !O {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %S16 = diagram.cast %S : !S -> !S16
  %A = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %A : !O
}

// Under an order the chunks before that of a row are multiplied so, and A B is made within chunks alone. What is made of
// the sum element by element is made in chunks, too.

// CHECK-LABEL: func.func @in_chunks
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S in chunks of 64", "a sum under an order splits at chunks; associativity of the product", "">]
// CHECK-NEXT: %Q_1 = diagram.read %Q at "64 * q_chunk + q_in, d" : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %K_1 = diagram.read %K at "64 * x_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>
// CHECK-NEXT: %V_1 = diagram.read %V at "64 * x_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %A_state = diagram.contract %K_1, %V_1 over [x_in] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>, tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>>
// CHECK-NEXT: %one = diagram.fill 1.000000e+00 : f32 -> tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %counted = diagram.where %one if "x_chunk < q_chunk" : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %A_states = diagram.contract %counted, %A_state over [x_chunk] accumulate f32 as tf32 : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>, tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>>
// CHECK-NEXT: %Q_2 = diagram.cast %Q_1 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %A_before = diagram.contract %Q_2, %A_states over [d] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %K_2 = diagram.read %K at "64 * q_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>>
// CHECK-NEXT: %V_2 = diagram.read %V at "64 * q_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>>
// CHECK-NEXT: %S = diagram.contract %Q_1, %K_2 over [d] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %L = diagram.where %S if "x_in <= q_in" : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %S16 = diagram.cast %L : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %A_same = diagram.contract %S16, %V_2 over [x_in] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>, tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %A = diagram.map (%a_before = %A_before : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>, %a_same = %A_same : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>) -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_before, %a_same : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %O = diagram.cast %A : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> -> tensor<4x64x32xf16, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %O_1 = diagram.collapse %O [q_chunk, q_in] as q : tensor<4x64x32xf16, #diagram.array<[q_chunk, q_in, e]>> -> tensor<256x32xf16, #diagram.array<[q, e]>>
// CHECK-NEXT: func.return %O_1 : tensor<256x32xf16, #diagram.array<[q, e]>>
// With chunks of two chunks, their states are added up so, too.

// DEEP-LABEL: func.func @in_chunks
// DEEP-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S in chunks of 64, these in chunks of 2", "a sum under an order splits at chunks; associativity of the product", "">]
// DEEP: %A_state = diagram.contract %K_1, %V_1 over [x_in] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>, tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>>
// DEEP-NEXT: %A_state_1 = diagram.read %A_state at "2 * x_chunk_chunk + x_chunk_in, d, e" : tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<2x2x64x32xf32, #diagram.array<[x_chunk_chunk, x_chunk_in, d, e]>>
// DEEP-NEXT: %A_states_state = diagram.reduce add %A_state_1 over [x_chunk_in] : tensor<2x2x64x32xf32, #diagram.array<[x_chunk_chunk, x_chunk_in, d, e]>> -> tensor<2x64x32xf32, #diagram.array<[x_chunk_chunk, d, e]>>
// DEEP-NEXT: %one = diagram.fill 1.000000e+00 : f32 -> tensor<2x2xf32, #diagram.array<[q_chunk_chunk, x_chunk_chunk]>>
// DEEP-NEXT: %counted = diagram.where %one if "x_chunk_chunk < q_chunk_chunk" : tensor<2x2xf32, #diagram.array<[q_chunk_chunk, x_chunk_chunk]>>
// DEEP-NEXT: %A_states_states = diagram.contract %counted, %A_states_state over [x_chunk_chunk] accumulate f32 as tf32 : tensor<2x2xf32, #diagram.array<[q_chunk_chunk, x_chunk_chunk]>>, tensor<2x64x32xf32, #diagram.array<[x_chunk_chunk, d, e]>> -> tensor<2x64x32xf32, #diagram.array<[q_chunk_chunk, d, e]>>
// DEEP-NEXT: %A_state_2 = diagram.read %A_state at "2 * q_chunk_chunk + x_chunk_in, d, e" : tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, x_chunk_in, d, e]>>
// DEEP-NEXT: %one_1 = diagram.fill 1.000000e+00 : f32 -> tensor<2x2xf32, #diagram.array<[q_chunk_in, x_chunk_in]>>
// DEEP-NEXT: %within = diagram.where %one_1 if "x_chunk_in < q_chunk_in" : tensor<2x2xf32, #diagram.array<[q_chunk_in, x_chunk_in]>>
// DEEP-NEXT: %A_states_same = diagram.contract %within, %A_state_2 over [x_chunk_in] accumulate f32 as tf32 : tensor<2x2xf32, #diagram.array<[q_chunk_in, x_chunk_in]>>, tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, x_chunk_in, d, e]>> -> tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, q_chunk_in, d, e]>>
// DEEP-NEXT: %A_states = diagram.map (%a_states_states = %A_states_states : tensor<2x64x32xf32, #diagram.array<[q_chunk_chunk, d, e]>>, %a_states_same = %A_states_same : tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, q_chunk_in, d, e]>>) -> tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, q_chunk_in, d, e]>> {
// DEEP-NEXT: %0 = arith.addf %a_states_states, %a_states_same : f32
// DEEP-NEXT: diagram.yield %0 : f32
// DEEP-NEXT: }
// DEEP-NEXT: %A_states_1 = diagram.collapse %A_states [q_chunk_chunk, q_chunk_in] as q_chunk : tensor<2x2x64x32xf32, #diagram.array<[q_chunk_chunk, q_chunk_in, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>>
// DEEP-NEXT: %Q_2 = diagram.cast %Q_1 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>
// DEEP-NEXT: %A_before = diagram.contract %Q_2, %A_states_1 over [d] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
func.func @in_chunks(%Q: !Q, %K: !K, %V: !V) -> !O16 {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %L = diagram.where %S if "x <= q" : !S
  %S16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  %O = diagram.cast %A : !O -> !O16
  func.return %O : !O16
}

// Where the chunks do not divide the length, zeros are read around it, and whole rows are read of the result.

// CHECK-LABEL: func.func @any_length
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S in chunks of 64", "a sum under an order splits at chunks; associativity of the product", "">]
// CHECK-NEXT: %Q_1 = diagram.read %Q at "64 * q_chunk + q_in, d" padded : tensor<?x64xf16, #diagram.array<[q, d]>> -> tensor<?x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %K_1 = diagram.read %K at "64 * x_chunk + x_in, d" padded : tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>
// CHECK-NEXT: %V_1 = diagram.read %V at "64 * x_chunk + x_in, e" padded : tensor<?x32xf16, #diagram.array<[x, e]>> -> tensor<?x64x32xf16, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %A_state = diagram.contract %K_1, %V_1 over [x_in] accumulate f32 : tensor<?x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>, tensor<?x64x32xf16, #diagram.array<[x_chunk, x_in, e]>> -> tensor<?x64x32xf32, #diagram.array<[x_chunk, d, e]>>
// CHECK-NEXT: %one = diagram.fill 1.000000e+00 : f32 -> tensor<?x?xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %counted = diagram.where %one if "x_chunk < q_chunk" : tensor<?x?xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %A_states = diagram.contract %counted, %A_state over [x_chunk] accumulate f32 as tf32 : tensor<?x?xf32, #diagram.array<[q_chunk, x_chunk]>>, tensor<?x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<?x64x32xf32, #diagram.array<[q_chunk, d, e]>>
// CHECK-NEXT: %Q_2 = diagram.cast %Q_1 : tensor<?x64x64xf16, #diagram.array<[q_chunk, q_in, d]>> -> tensor<?x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %A_before = diagram.contract %Q_2, %A_states over [d] accumulate f32 as tf32 : tensor<?x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, tensor<?x64x32xf32, #diagram.array<[q_chunk, d, e]>> -> tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %K_2 = diagram.read %K at "64 * q_chunk + x_in, d" padded : tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x64x64xf16, #diagram.array<[q_chunk, x_in, d]>>
// CHECK-NEXT: %V_2 = diagram.read %V at "64 * q_chunk + x_in, e" padded : tensor<?x32xf16, #diagram.array<[x, e]>> -> tensor<?x64x32xf16, #diagram.array<[q_chunk, x_in, e]>>
// CHECK-NEXT: %S = diagram.contract %Q_1, %K_2 over [d] accumulate f32 : tensor<?x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>, tensor<?x64x64xf16, #diagram.array<[q_chunk, x_in, d]>> -> tensor<?x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %L = diagram.where %S if "x_in < q_in" : tensor<?x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %S16 = diagram.cast %L : tensor<?x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>> -> tensor<?x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %A_same = diagram.contract %S16, %V_2 over [x_in] accumulate f32 : tensor<?x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>, tensor<?x64x32xf16, #diagram.array<[q_chunk, x_in, e]>> -> tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %A = diagram.map (%a_before = %A_before : tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>, %a_same = %A_same : tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>) -> tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_before, %a_same : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_1 = diagram.collapse %A [q_chunk, q_in] as q_whole : tensor<?x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> -> tensor<?x32xf32, #diagram.array<[q_whole, e]>>
// CHECK-NEXT: %A_2 = diagram.read %A_1 at "q, e" : tensor<?x32xf32, #diagram.array<[q_whole, e]>> -> tensor<?x32xf32, #diagram.array<[q, e]>>
// CHECK-NEXT: func.return %A_2 : tensor<?x32xf32, #diagram.array<[q, e]>>
func.func @any_length(%Q: !Qs, %K: !Ks, %V: !Vs) -> !Os {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Qs, !Ks -> !Ss
  %L = diagram.where %S if "x < q" : !Ss
  %S16 = diagram.cast %L : !Ss -> !Ss16
  %A = diagram.contract %S16, %V over [x] accumulate f32 : !Ss16, !Vs -> !Os
  func.return %A : !Os
}

// A sum of products without a third factor, in f32 throughout.

// CHECK-LABEL: func.func @sum_alone
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S", "associativity of the product", "">]
// CHECK-NEXT: %K_1 = diagram.cast %K : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<256x64xf32, #diagram.array<[x, d]>>
// CHECK-NEXT: %A_state = diagram.reduce add %K_1 over [x] : tensor<256x64xf32, #diagram.array<[x, d]>> -> tensor<64xf32, #diagram.array<[d]>>
// CHECK-NEXT: %Q_1 = diagram.map (%q = %Q : tensor<256x64xf16, #diagram.array<[q, d]>>, %a_state = %A_state : tensor<64xf32, #diagram.array<[d]>>) -> tensor<256x64xf32, #diagram.array<[q, d]>> {
// CHECK-NEXT: %0 = arith.extf %q : f16 to f32
// CHECK-NEXT: %1 = arith.mulf %0, %a_state : f32
// CHECK-NEXT: diagram.yield %1 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A = diagram.reduce add %Q_1 over [d] : tensor<256x64xf32, #diagram.array<[q, d]>> -> tensor<256xf32, #diagram.array<[q]>>
// CHECK-NEXT: func.return %A : tensor<256xf32, #diagram.array<[q]>>
func.func @sum_alone(%Q: !Q, %K: !K) -> !n {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %A = diagram.reduce add %S over [x] : !S -> !n
  func.return %A : !n
}

// Powers of differences are told from a reference in each chunk, the largest exponent of what is summed; these, from the
// largest of all chunks before that of a row.

// CHECK-LABEL: func.func @with_decays
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S in chunks of 64", "a sum under an order splits at chunks; associativity of the product; exp(a + b) = exp(a) exp(b)", "">]
// CHECK-NEXT: %Q_1 = diagram.read %Q at "64 * q_chunk + q_in, d" : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %K_1 = diagram.read %K at "64 * x_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>
// CHECK-NEXT: %V_1 = diagram.read %V at "64 * x_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %b_1 = diagram.read %b at "64 * x_chunk + x_in" : tensor<256xf32, #diagram.array<[x]>> -> tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>>
// CHECK-NEXT: %exponent = diagram.map (%b_2 = %b_1 : tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>>) -> tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>> {
// CHECK-NEXT: %0 = arith.negf %b_2 : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %reference = diagram.reduce max %exponent over [x_in] : tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>> -> tensor<4xf32, #diagram.array<[x_chunk]>>
// CHECK-NEXT: %K_2 = diagram.map (%k = %K_1 : tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>, %exponent_1 = %exponent : tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>>, %reference_1 = %reference : tensor<4xf32, #diagram.array<[x_chunk]>>) -> tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>> {
// CHECK-NEXT: %0 = arith.extf %k : f16 to f32
// CHECK-NEXT: %1 = arith.constant 0xff800000 : f32
// CHECK-NEXT: %2 = arith.cmpf oeq, %reference_1, %1 : f32
// CHECK-NEXT: %3 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %4 = arith.select %2, %3, %reference_1 : f32
// CHECK-NEXT: %5 = arith.subf %exponent_1, %4 : f32
// CHECK-NEXT: %6 = math.exp %5 : f32
// CHECK-NEXT: %7 = arith.mulf %0, %6 : f32
// CHECK-NEXT: diagram.yield %7 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %V_2 = diagram.cast %V_1 : tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %A_state = diagram.contract %K_2, %V_2 over [x_in] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>>, tensor<4x64x32xf32, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>>
// CHECK-NEXT: %references = diagram.map (%reference_1 = %reference : tensor<4xf32, #diagram.array<[x_chunk]>>) -> tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>> {
// CHECK-NEXT: diagram.yield %reference_1 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %counted = diagram.where %references if "x_chunk < q_chunk" : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %reference_1 = diagram.reduce max %counted over [x_chunk] : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>> -> tensor<4xf32, #diagram.array<[q_chunk]>>
// CHECK-NEXT: %decay = diagram.map (%references_1 = %references : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>, %reference_2 = %reference_1 : tensor<4xf32, #diagram.array<[q_chunk]>>) -> tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>> {
// CHECK-NEXT: %0 = arith.constant 0xff800000 : f32
// CHECK-NEXT: %1 = arith.cmpf oeq, %reference_2, %0 : f32
// CHECK-NEXT: %2 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %3 = arith.select %1, %2, %reference_2 : f32
// CHECK-NEXT: %4 = arith.subf %references_1, %3 : f32
// CHECK-NEXT: %5 = math.exp %4 : f32
// CHECK-NEXT: diagram.yield %5 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %counted_1 = diagram.where %decay if "x_chunk < q_chunk" : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>
// CHECK-NEXT: %a_1 = diagram.read %a at "64 * q_chunk + q_in" : tensor<256xf32, #diagram.array<[q]>> -> tensor<4x64xf32, #diagram.array<[q_chunk, q_in]>>
// CHECK-NEXT: %A_states = diagram.contract %counted_1, %A_state over [x_chunk] accumulate f32 as tf32 : tensor<4x4xf32, #diagram.array<[q_chunk, x_chunk]>>, tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>>
// CHECK-NEXT: %Q_2 = diagram.cast %Q_1 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %A_before = diagram.contract %Q_2, %A_states over [d] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %A_before_1 = diagram.map (%a_before = %A_before : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>, %a_2 = %a_1 : tensor<4x64xf32, #diagram.array<[q_chunk, q_in]>>, %reference_2 = %reference_1 : tensor<4xf32, #diagram.array<[q_chunk]>>) -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_2, %reference_2 : f32
// CHECK-NEXT: %1 = math.exp %0 : f32
// CHECK-NEXT: %2 = arith.mulf %a_before, %1 : f32
// CHECK-NEXT: diagram.yield %2 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %K_3 = diagram.read %K at "64 * q_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>>
// CHECK-NEXT: %V_3 = diagram.read %V at "64 * q_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>>
// CHECK-NEXT: %S = diagram.contract %Q_1, %K_3 over [d] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %b_2 = diagram.read %b at "64 * q_chunk + x_in" : tensor<256xf32, #diagram.array<[x]>> -> tensor<4x64xf32, #diagram.array<[q_chunk, x_in]>>
// CHECK-NEXT: %T = diagram.map (%s = %S : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>, %u = %a_1 : tensor<4x64xf32, #diagram.array<[q_chunk, q_in]>>, %v = %b_2 : tensor<4x64xf32, #diagram.array<[q_chunk, x_in]>>) -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>> {
// CHECK-NEXT: %w = arith.subf %u, %v : f32
// CHECK-NEXT: %p = math.exp %w : f32
// CHECK-NEXT: %t = arith.mulf %s, %p : f32
// CHECK-NEXT: diagram.yield %t : f32
// CHECK-NEXT: }
// CHECK-NEXT: %L = diagram.where %T if "x_in <= q_in" : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %S16 = diagram.cast %L : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, x_in]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>
// CHECK-NEXT: %A_same = diagram.contract %S16, %V_3 over [x_in] accumulate f32 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, x_in]>>, tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %A = diagram.map (%a_before = %A_before_1 : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>, %a_same = %A_same : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>) -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_before, %a_same : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_1 = diagram.collapse %A [q_chunk, q_in] as q : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> -> tensor<256x32xf32, #diagram.array<[q, e]>>
// CHECK-NEXT: func.return %A_1 : tensor<256x32xf32, #diagram.array<[q, e]>>
func.func @with_decays(%Q: !Q, %K: !K, %V: !V, %a: !n, %b: !m) -> !O {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %u = %a : !n, %v = %b : !m) -> !S {
    %w = arith.subf %u, %v : f32
    %p = math.exp %w : f32
    %t = arith.mulf %s, %p : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %T if "x <= q" : !S
  %S16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %A : !O
}

// A sum under an order is one over whole chunks before that of a row, and one within its chunk: both are products with
// ones. What is summed is read along the axis of rows, under another name.

// CHECK-LABEL: func.func @cumulative
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A under 'y <= x' in chunks of 64", "a sum under an order splits at chunks; associativity of the sum", "">]
// CHECK-NEXT: %g_y = diagram.read %g at "y" : tensor<256xf32, #diagram.array<[x]>> -> tensor<256xf32, #diagram.array<[y]>>
// CHECK-NEXT: %g_y_1 = diagram.read %g_y at "64 * x_chunk + y_in" : tensor<256xf32, #diagram.array<[y]>> -> tensor<4x64xf32, #diagram.array<[x_chunk, y_in]>>
// CHECK-NEXT: %g_y_2 = diagram.read %g_y at "64 * y_chunk + y_in" : tensor<256xf32, #diagram.array<[y]>> -> tensor<4x64xf32, #diagram.array<[y_chunk, y_in]>>
// CHECK-NEXT: %A_state = diagram.reduce add %g_y_2 over [y_in] : tensor<4x64xf32, #diagram.array<[y_chunk, y_in]>> -> tensor<4xf32, #diagram.array<[y_chunk]>>
// CHECK-NEXT: %one = diagram.fill 1.000000e+00 : f32 -> tensor<4x4xf32, #diagram.array<[x_chunk, y_chunk]>>
// CHECK-NEXT: %counted = diagram.where %one if "y_chunk < x_chunk" : tensor<4x4xf32, #diagram.array<[x_chunk, y_chunk]>>
// CHECK-NEXT: %counted_1 = diagram.map (%counted_2 = %counted : tensor<4x4xf32, #diagram.array<[x_chunk, y_chunk]>>, %a_state = %A_state : tensor<4xf32, #diagram.array<[y_chunk]>>) -> tensor<4x4xf32, #diagram.array<[x_chunk, y_chunk]>> {
// CHECK-NEXT: %0 = arith.mulf %counted_2, %a_state : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_states = diagram.reduce add %counted_1 over [y_chunk] : tensor<4x4xf32, #diagram.array<[x_chunk, y_chunk]>> -> tensor<4xf32, #diagram.array<[x_chunk]>>
// CHECK-NEXT: %one_1 = diagram.fill 1.000000e+00 : f32 -> tensor<64x64xf32, #diagram.array<[x_in, y_in]>>
// CHECK-NEXT: %within = diagram.where %one_1 if "y_in <= x_in" : tensor<64x64xf32, #diagram.array<[x_in, y_in]>>
// CHECK-NEXT: %A_same = diagram.contract %within, %g_y_1 over [y_in] accumulate f32 : tensor<64x64xf32, #diagram.array<[x_in, y_in]>>, tensor<4x64xf32, #diagram.array<[x_chunk, y_in]>> -> tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>>
// CHECK-NEXT: %A = diagram.map (%a_states = %A_states : tensor<4xf32, #diagram.array<[x_chunk]>>, %a_same = %A_same : tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>>) -> tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>> {
// CHECK-NEXT: %0 = arith.addf %a_states, %a_same : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_1 = diagram.collapse %A [x_chunk, x_in] as x : tensor<4x64xf32, #diagram.array<[x_chunk, x_in]>> -> tensor<256xf32, #diagram.array<[x]>>
// CHECK-NEXT: func.return %A_1 : tensor<256xf32, #diagram.array<[x]>>

!G = tensor<256xf32, #diagram.array<[x]>>
!Gy = tensor<256xf32, #diagram.array<[y]>>
!W = tensor<256x256xf32, #diagram.array<[x, y]>>
func.func @cumulative(%g: !G) -> !G {
  %g_y = diagram.read %g at "y" : !G -> !Gy
  %b = diagram.map (%v = %g_y : !Gy) -> !W {
    diagram.yield %v : f32
  }
  %L = diagram.where %b if "y <= x" : !W
  %A = diagram.reduce add %L over [y] : !W -> !G
  func.return %A : !G
}

// Decays along the axis that the first product sums: columns of the states decay each by itself. In the chunk of a row
// the parts before that of the row are told from their largest exponent; pairs of one part are made as they stand.

// CHECK-LABEL: func.func @with_gates
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-reassociate", "%A of %S in chunks of 64", "a sum under an order splits at chunks, and at parts of these; associativity of the product; exp(a + b) = exp(a) exp(b)", "">]
// CHECK-NEXT: %V_1 = diagram.read %V at "64 * x_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %Q_1 = diagram.read %Q at "64 * q_chunk + q_in, d" : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %b_1 = diagram.read %b at "64 * x_chunk + x_in, d" : tensor<256x64xf32, #diagram.array<[x, d]>> -> tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>>
// CHECK-NEXT: %exponent = diagram.map (%b_2 = %b_1 : tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>>) -> tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>> {
// CHECK-NEXT: %0 = arith.negf %b_2 : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %reference = diagram.reduce max %exponent over [x_in] : tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>> -> tensor<4x64xf32, #diagram.array<[x_chunk, d]>>
// CHECK-NEXT: %K_1 = diagram.read %K at "64 * x_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>
// CHECK-NEXT: %far = diagram.map (%k = %K_1 : tensor<4x64x64xf16, #diagram.array<[x_chunk, x_in, d]>>, %exponent_1 = %exponent : tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>>, %reference_1 = %reference : tensor<4x64xf32, #diagram.array<[x_chunk, d]>>) -> tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>> {
// CHECK-NEXT: %k32 = arith.extf %k : f16 to f32
// CHECK-NEXT: %0 = arith.constant 0xff800000 : f32
// CHECK-NEXT: %1 = arith.cmpf oeq, %reference_1, %0 : f32
// CHECK-NEXT: %2 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %3 = arith.select %1, %2, %reference_1 : f32
// CHECK-NEXT: %4 = arith.subf %exponent_1, %3 : f32
// CHECK-NEXT: %5 = math.exp %4 : f32
// CHECK-NEXT: %6 = arith.mulf %k32, %5 : f32
// CHECK-NEXT: diagram.yield %6 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %V_2 = diagram.cast %V_1 : tensor<4x64x32xf16, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, x_in, e]>>
// CHECK-NEXT: %A_state = diagram.contract %far, %V_2 over [x_in] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[x_chunk, x_in, d]>>, tensor<4x64x32xf32, #diagram.array<[x_chunk, x_in, e]>> -> tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>>
// CHECK-NEXT: %references = diagram.map (%reference_1 = %reference : tensor<4x64xf32, #diagram.array<[x_chunk, d]>>) -> tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>> {
// CHECK-NEXT: diagram.yield %reference_1 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %counted = diagram.where %references if "x_chunk < q_chunk" : tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>>
// CHECK-NEXT: %reference_1 = diagram.reduce max %counted over [x_chunk] : tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>> -> tensor<64x4xf32, #diagram.array<[d, q_chunk]>>
// CHECK-NEXT: %decay = diagram.map (%references_1 = %references : tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>>, %reference_2 = %reference_1 : tensor<64x4xf32, #diagram.array<[d, q_chunk]>>) -> tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>> {
// CHECK-NEXT: %0 = arith.constant 0xff800000 : f32
// CHECK-NEXT: %1 = arith.cmpf oeq, %reference_2, %0 : f32
// CHECK-NEXT: %2 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %3 = arith.select %1, %2, %reference_2 : f32
// CHECK-NEXT: %4 = arith.subf %references_1, %3 : f32
// CHECK-NEXT: %5 = math.exp %4 : f32
// CHECK-NEXT: diagram.yield %5 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %counted_1 = diagram.where %decay if "x_chunk < q_chunk" : tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>>
// CHECK-NEXT: %a_1 = diagram.read %a at "64 * q_chunk + q_in, d" : tensor<256x64xf32, #diagram.array<[q, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>
// CHECK-NEXT: %A_states = diagram.contract %counted_1, %A_state over [x_chunk] accumulate f32 as tf32 : tensor<64x4x4xf32, #diagram.array<[d, q_chunk, x_chunk]>>, tensor<4x64x32xf32, #diagram.array<[x_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>>
// CHECK-NEXT: %near = diagram.map (%a_2 = %a_1 : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, %reference_2 = %reference_1 : tensor<64x4xf32, #diagram.array<[d, q_chunk]>>, %q = %Q_1 : tensor<4x64x64xf16, #diagram.array<[q_chunk, q_in, d]>>) -> tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>> {
// CHECK-NEXT: %0 = arith.addf %a_2, %reference_2 : f32
// CHECK-NEXT: %1 = math.exp %0 : f32
// CHECK-NEXT: %q32 = arith.extf %q : f16 to f32
// CHECK-NEXT: %2 = arith.mulf %1, %q32 : f32
// CHECK-NEXT: diagram.yield %2 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_before = diagram.contract %near, %A_states over [d] accumulate f32 as tf32 : tensor<4x64x64xf32, #diagram.array<[q_chunk, q_in, d]>>, tensor<4x64x32xf32, #diagram.array<[q_chunk, d, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %Q_2 = diagram.read %Q at "64 * q_chunk + 16 * q_part + q_in_part, d" : tensor<256x64xf16, #diagram.array<[q, d]>> -> tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, q_in_part, d]>>
// CHECK-NEXT: %a_2 = diagram.read %a at "64 * q_chunk + 16 * q_part + q_in_part, d" : tensor<256x64xf32, #diagram.array<[q, d]>> -> tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, d]>>
// CHECK-NEXT: %K_2 = diagram.read %K at "64 * q_chunk + 16 * q_part + x_in_part, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, x_in_part, d]>>
// CHECK-NEXT: %b_2 = diagram.read %b at "64 * q_chunk + 16 * q_part + x_in_part, d" : tensor<256x64xf32, #diagram.array<[x, d]>> -> tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, x_in_part, d]>>
// CHECK-NEXT: %W = diagram.map (%q = %Q_2 : tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, q_in_part, d]>>, %k = %K_2 : tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, x_in_part, d]>>, %u = %a_2 : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, d]>>, %v = %b_2 : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, x_in_part, d]>>) -> tensor<4x4x16x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part, d]>> {
// CHECK-NEXT: %q32 = arith.extf %q : f16 to f32
// CHECK-NEXT: %k32 = arith.extf %k : f16 to f32
// CHECK-NEXT: %s = arith.mulf %q32, %k32 : f32
// CHECK-NEXT: %w = arith.subf %u, %v : f32
// CHECK-NEXT: %p = math.exp %w : f32
// CHECK-NEXT: %t = arith.mulf %s, %p : f32
// CHECK-NEXT: diagram.yield %t : f32
// CHECK-NEXT: }
// CHECK-NEXT: %S = diagram.reduce add %W over [d] : tensor<4x4x16x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part, d]>> -> tensor<4x4x16x16xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part]>>
// CHECK-NEXT: %L = diagram.where %S if "x_in_part <= q_in_part" : tensor<4x4x16x16xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part]>>
// CHECK-NEXT: %S16 = diagram.cast %L : tensor<4x4x16x16xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part]>> -> tensor<4x4x16x16xf16, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part]>>
// CHECK-NEXT: %V_3 = diagram.read %V at "64 * q_chunk + 16 * q_part + x_in_part, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x4x16x32xf16, #diagram.array<[q_chunk, q_part, x_in_part, e]>>
// CHECK-NEXT: %A_same = diagram.contract %S16, %V_3 over [x_in_part] accumulate f32 : tensor<4x4x16x16xf16, #diagram.array<[q_chunk, q_part, q_in_part, x_in_part]>>, tensor<4x4x16x32xf16, #diagram.array<[q_chunk, q_part, x_in_part, e]>> -> tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>>
// CHECK-NEXT: %b_3 = diagram.read %b at "64 * q_chunk + x_in, d" : tensor<256x64xf32, #diagram.array<[x, d]>> -> tensor<4x64x64xf32, #diagram.array<[q_chunk, x_in, d]>>
// CHECK-NEXT: %exponent_1 = diagram.map (%b_4 = %b_3 : tensor<4x64x64xf32, #diagram.array<[q_chunk, x_in, d]>>) -> tensor<4x64x64xf32, #diagram.array<[q_chunk, x_in, d]>> {
// CHECK-NEXT: %0 = arith.negf %b_4 : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %exponents = diagram.map (%exponent_2 = %exponent_1 : tensor<4x64x64xf32, #diagram.array<[q_chunk, x_in, d]>>) -> tensor<4x4x64x64xf32, #diagram.array<[q_chunk, q_part, x_in, d]>> {
// CHECK-NEXT: diagram.yield %exponent_2 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %earlier = diagram.where %exponents if "x_in < 16 * q_part" : tensor<4x4x64x64xf32, #diagram.array<[q_chunk, q_part, x_in, d]>>
// CHECK-NEXT: %reference_2 = diagram.reduce max %earlier over [x_in] : tensor<4x4x64x64xf32, #diagram.array<[q_chunk, q_part, x_in, d]>> -> tensor<4x4x64xf32, #diagram.array<[q_chunk, q_part, d]>>
// CHECK-NEXT: %K_3 = diagram.read %K at "64 * q_chunk + x_in, d" : tensor<256x64xf16, #diagram.array<[x, d]>> -> tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>>
// CHECK-NEXT: %far_1 = diagram.map (%k = %K_3 : tensor<4x64x64xf16, #diagram.array<[q_chunk, x_in, d]>>, %b_4 = %b_3 : tensor<4x64x64xf32, #diagram.array<[q_chunk, x_in, d]>>, %reference_3 = %reference_2 : tensor<4x4x64xf32, #diagram.array<[q_chunk, q_part, d]>>) -> tensor<4x64x64x4xf32, #diagram.array<[q_chunk, x_in, d, q_part]>> {
// CHECK-NEXT: %k32 = arith.extf %k : f16 to f32
// CHECK-NEXT: %0 = arith.negf %b_4 : f32
// CHECK-NEXT: %1 = arith.constant 0xff800000 : f32
// CHECK-NEXT: %2 = arith.cmpf oeq, %reference_3, %1 : f32
// CHECK-NEXT: %3 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %4 = arith.select %2, %3, %reference_3 : f32
// CHECK-NEXT: %5 = arith.subf %0, %4 : f32
// CHECK-NEXT: %6 = arith.minimumf %5, %3 : f32
// CHECK-NEXT: %7 = math.exp %6 : f32
// CHECK-NEXT: %8 = arith.mulf %k32, %7 : f32
// CHECK-NEXT: diagram.yield %8 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %near_1 = diagram.map (%q = %Q_2 : tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, q_in_part, d]>>, %a_3 = %a_2 : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, d]>>, %reference_3 = %reference_2 : tensor<4x4x64xf32, #diagram.array<[q_chunk, q_part, d]>>) -> tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, d]>> {
// CHECK-NEXT: %q32 = arith.extf %q : f16 to f32
// CHECK-NEXT: %0 = arith.addf %a_3, %reference_3 : f32
// CHECK-NEXT: %1 = math.exp %0 : f32
// CHECK-NEXT: %2 = arith.mulf %q32, %1 : f32
// CHECK-NEXT: diagram.yield %2 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %S_1 = diagram.contract %near_1, %far_1 over [d] accumulate f32 : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, d]>>, tensor<4x64x64x4xf32, #diagram.array<[q_chunk, x_in, d, q_part]>> -> tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in]>>
// CHECK-NEXT: %earlier_1 = diagram.where %S_1 if "x_in < 16 * q_part" : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in]>>
// CHECK-NEXT: %earlier_2 = diagram.cast %earlier_1 : tensor<4x4x16x64xf32, #diagram.array<[q_chunk, q_part, q_in_part, x_in]>> -> tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, q_in_part, x_in]>>
// CHECK-NEXT: %V_4 = diagram.read %V at "64 * q_chunk + x_in, e" : tensor<256x32xf16, #diagram.array<[x, e]>> -> tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>>
// CHECK-NEXT: %A_earlier = diagram.contract %earlier_2, %V_4 over [x_in] accumulate f32 : tensor<4x4x16x64xf16, #diagram.array<[q_chunk, q_part, q_in_part, x_in]>>, tensor<4x64x32xf16, #diagram.array<[q_chunk, x_in, e]>> -> tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>>
// CHECK-NEXT: %A_same_1 = diagram.map (%a_same = %A_same : tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>>, %a_earlier = %A_earlier : tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>>) -> tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_same, %a_earlier : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_same_2 = diagram.collapse %A_same_1 [q_part, q_in_part] as q_in : tensor<4x4x16x32xf32, #diagram.array<[q_chunk, q_part, q_in_part, e]>> -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>
// CHECK-NEXT: %A = diagram.map (%a_before = %A_before : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>, %a_same = %A_same_2 : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>>) -> tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> {
// CHECK-NEXT: %0 = arith.addf %a_before, %a_same : f32
// CHECK-NEXT: diagram.yield %0 : f32
// CHECK-NEXT: }
// CHECK-NEXT: %A_1 = diagram.collapse %A [q_chunk, q_in] as q : tensor<4x64x32xf32, #diagram.array<[q_chunk, q_in, e]>> -> tensor<256x32xf32, #diagram.array<[q, e]>>
// CHECK-NEXT: func.return %A_1 : tensor<256x32xf32, #diagram.array<[q, e]>>
!Gq = tensor<256x64xf32, #diagram.array<[q, d]>>
!Gx = tensor<256x64xf32, #diagram.array<[x, d]>>
!Gw = tensor<256x256x64xf32, #diagram.array<[q, x, d]>>
func.func @with_gates(%Q: !Q, %K: !K, %V: !V, %a: !Gq, %b: !Gx) -> !O {
  %W = diagram.map (%q = %Q : !Q, %k = %K : !K, %u = %a : !Gq, %v = %b : !Gx) -> !Gw {
    %q32 = arith.extf %q : f16 to f32
    %k32 = arith.extf %k : f16 to f32
    %s = arith.mulf %q32, %k32 : f32
    %w = arith.subf %u, %v : f32
    %p = math.exp %w : f32
    %t = arith.mulf %s, %p : f32
    diagram.yield %t : f32
  }
  %S = diagram.reduce add %W over [d] : !Gw -> !S
  %L = diagram.where %S if "x <= q" : !S
  %S16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %A : !O
}
