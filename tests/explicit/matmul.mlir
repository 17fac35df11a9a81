// A matrix product, expanded by hand: 32 x 16 tiles, steps of 8.

!A = tensor<?x?xf16, #diagram.array<[a, b]>>
!B = tensor<?x?xf16, #diagram.array<[b, c]>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
!Ad = tensor<?x?xf16, #diagram.array<[a, b], level = device>>
!Bd = tensor<?x?xf16, #diagram.array<[b, c], level = device>>
!Cd = memref<?x?xf32, #diagram.array<[a, c], level = device>>
!At = tensor<32x8xf16, #diagram.array<[a, b], level = shared>>
!Bt = tensor<8x16xf16, #diagram.array<[b, c], level = shared>>
!Ct = tensor<32x16xf32, #diagram.array<[a, c], level = register>>

func.func @matmul(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<a = 64, b = 16, c = 32>} {
  %C = hierarchy.kernel @matmul (%Ad = %A : !A as !Ad, %Bd = %B : !B as !Bd) saves (%Cd : !Cd) -> (!C)
      schedule #hierarchy.schedule<group = [a = 32, c = 16], stream = [b = 8], warps = [a = 2]> {
    hierarchy.group [a = 32, c = 16] {
      %acc = hierarchy.stream [b = 8] -> (!Ct) initialise {
        %zero = diagram.fill 0.000000e+00 : f32 -> !Ct
        hierarchy.yield %zero : !Ct
      } step (%s : !Ct) {
        %At = hierarchy.load %Ad : !Ad -> !At
        %Bt = hierarchy.load %Bd : !Bd -> !Bt
        %next = diagram.contract %At, %Bt over [b] accumulate f32 into %s : !At, !Bt -> !Ct
        hierarchy.yield %next : !Ct
      } finish (%e : !Ct) {
        hierarchy.yield %e : !Ct
      }
      hierarchy.save %acc into %Cd : !Ct, !Cd
    }
    hierarchy.yield
  }
  func.return %C : !C
}
